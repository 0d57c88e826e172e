import { connect } from "node:net";
import { expect, test } from "vitest";
import { capturedRequest, captureFolder, shapeOf, startSim } from "./sim-client.ts";

const chat = "/v1/chat/completions";
const messages = [{ role: "user", content: "hello" }];

const vllmCapture = captureFolder("vllm-0.32.0");
const sglangCapture = captureFolder("sglang-0.5.23");

test.skipIf(vllmCapture === undefined)("an unknown model is refused with the words of vLLM", async () => {
  const captured = await capturedRequest(vllmCapture as string, "b4.unknown-model");
  const sim = await startSim({ models: ["tiny-public"] });
  const answer = await sim.post(captured.path, captured.request);
  expect(answer.status).toBe(captured.status);
  expect(answer.json).toEqual(captured.response);
});

test.skipIf(sglangCapture === undefined)("SGLang serves whatever the model is called", async () => {
  const captured = await capturedRequest(sglangCapture as string, "b4.unknown-model");
  const sim = await startSim({ models: ["tiny-public"], parameters: { flavour: "sglang" } });
  const answer = await sim.post(captured.path, captured.request);
  expect(answer.status).toBe(captured.status);
  expect(answer.json.model).toBe("no-such-model");
});

for (const [flavour, folder] of [
  ["vllm", vllmCapture],
  ["sglang", sglangCapture],
] as const) {
  test.skipIf(folder === undefined)(`a prompt that is too long is refused as ${flavour} does`, async () => {
    const captured = await capturedRequest(folder as string, "b4.too-long");
    const sim = await startSim({ models: ["tiny-public"], parameters: { flavour, maxModelLength: 2_048 } });
    const answer = await sim.post(captured.path, captured.request);
    expect(answer.status).toBe(captured.status);
    expect(shapeOf(answer.json)).toEqual(shapeOf(captured.response));
    const fixed = ({ message: _message, ...rest }: Record<string, unknown>) => rest;
    const errorOf = (body: Record<string, unknown>) => (body.error ?? body) as Record<string, unknown>;
    expect(fixed(errorOf(answer.json))).toEqual(fixed(errorOf(captured.response ?? {})));
  });
}

test("a prompt may fill all of the model but one token, and no more", async () => {
  const sim = await startSim({ parameters: { maxModelLength: 64 } });
  const complete = (tokens: number, maxTokens: number) =>
    sim.post("/v1/completions", { prompt: Array(tokens).fill(5), max_tokens: maxTokens });
  expect((await complete(63, 1)).status).toBe(200);
  expect((await complete(64, 1)).status).toBe(400);
  const beyond = await complete(63, 2);
  expect(beyond.status).toBe(400);
  expect(beyond.json.error).toMatchObject({ param: "max_tokens", type: "BadRequestError", code: 400 });
  const replayed = await sim.post(chat, { messages }, { "x-sim-output-tokens": "65" });
  expect(replayed.status).toBe(400);
});

test("what the KV cache can never hold is refused too, and leaves nothing behind", async () => {
  const sim = await startSim({ parameters: { blockCount: 4, blockSize: 16 } });
  const answer = await sim.post("/v1/completions", { prompt: Array(60).fill(5), max_tokens: 20, n: 2 });
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ type: "BadRequestError", code: 400 });
  const { active, stats } = await sim.state();
  expect(active).toEqual([]);
  expect(stats.running).toBe(0);
  expect(stats.waiting).toBe(0);
});

test.each([
  ["not JSON", "{"],
  ["a list", "[]"],
  ["null", "null"],
])("a body that is %s is refused", async (_what, body) => {
  const sim = await startSim();
  const answer = await sim.post(chat, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ type: "BadRequestError", code: 400 });
  expect((await sim.state()).totals.rejected).toBe(1);
});

test.each([
  [{}, "messages"],
  [{ messages: [] }, "messages"],
  [{ messages: [7] }, "messages.0"],
  [{ messages: [{ content: "x" }] }, "messages.0.role"],
  [{ messages: [...messages, { role: "user", content: 7 }] }, "messages.1.content"],
  [{ messages: [{ role: "user", content: [7] }] }, "messages.0.content.0"],
  [{ messages, max_tokens: -1 }, "max_tokens"],
  [{ messages, max_completion_tokens: "5.5" }, "max_completion_tokens"],
  [{ messages, max_tokens: "many" }, "max_tokens"],
  [{ messages, stream: "maybe" }, "stream"],
  [{ messages, n: 1.5 }, "n"],
])("a chat with %j is refused, naming the field", async (body, param) => {
  const sim = await startSim();
  const answer = await sim.post(chat, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param, code: 400 });
});

test.each(["0", "2.5"])("a replayed length of %s is refused", async (tokens) => {
  const sim = await startSim();
  const answer = await sim.post(chat, { messages }, { "x-sim-output-tokens": tokens });
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param: "x-sim-output-tokens" });
});

test("an unknown path is 404, in the form of the flavour", async () => {
  const vllm = await startSim();
  for (const path of ["/v1/nothing", "/", "/v1/responses/", "/v1/responses/a/b", "/constructor"]) {
    const answer = await vllm.get(path);
    expect(answer.status, path).toBe(404);
    expect(answer.json).toEqual({ error: { message: "Not Found", type: "NotFoundError", param: null, code: 404 } });
  }
  const sglang = await startSim({ parameters: { flavour: "sglang" } });
  expect((await sglang.get("/nothing")).json).toMatchObject({ object: "error", message: "Not Found", code: 404 });
});

test.each([
  ["GET", chat, "POST"],
  ["POST", "/v1/models", "GET"],
  ["PATCH", "/sim/faults", "POST, DELETE"],
  ["PUT", "/v1/responses/x", "GET, DELETE"],
])("%s %s is 405 and says what is allowed", async (method, path, allow) => {
  const sim = await startSim();
  const response = await fetch(sim.url + path, { method });
  expect(response.status).toBe(405);
  expect(response.headers.get("allow")).toBe(allow);
  expect(await response.json()).toMatchObject({ error: { message: "Method Not Allowed", code: 405 } });
});

test("a body above 32 MiB is refused, and one of exactly that is read", async () => {
  const sim = await startSim();
  const limit = 32 * 1024 * 1024;
  const bodyOf = (bytes: number) => {
    const head = '{"messages":0,"x":"';
    return `${head}${"a".repeat(bytes - head.length - 2)}"}`;
  };
  const beyond = await sim.post(chat, bodyOf(limit + 1));
  expect(beyond.status).toBe(413);
  expect(beyond.json.error).toMatchObject({ code: 413 });
  expect((await sim.post(chat, bodyOf(limit))).status).toBe(400);
});

test("with an API key, only its bearer is served; probes and the admin stay open", async () => {
  const sim = await startSim({ apiKey: "secret" });
  const good = { authorization: "Bearer secret" };
  for (const headers of [{}, { authorization: "Bearer wrong" }, { authorization: "secret" }]) {
    const answer = await sim.post(chat, { messages }, headers);
    expect(answer.status).toBe(401);
    expect(answer.json).toEqual({ error: "Unauthorized" });
    expect((await sim.get("/v1/models", headers)).status).toBe(401);
  }
  expect((await sim.post(chat, { messages, max_tokens: 1 }, good)).status).toBe(200);
  expect((await sim.get("/v1/models", good)).status).toBe(200);
  for (const path of ["/health", "/ping", "/metrics", "/version", "/sim/state"]) {
    expect((await sim.get(path)).status, path).toBe(200);
  }
});

test("a connection survives an error: the next request on it is answered", async () => {
  const sim = await startSim();
  const { hostname, port } = new URL(sim.url);
  const socket = connect(Number(port), hostname);
  const received = new Promise<string>((resolve) => {
    let text = "";
    socket.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
      if (text.includes("tiny")) resolve(text);
    });
  });
  const body = '{"prompt":5}';
  socket.write(`POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  socket.write("GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n");
  const text = await received;
  socket.destroy();
  expect(text).toMatch(/^HTTP\/1\.1 400 /);
  expect(text).toMatch(/HTTP\/1\.1 200 /);
});

test("an error to a body that was not read closes the connection", async () => {
  const sim = await startSim();
  const { hostname, port } = new URL(sim.url);
  const socket = connect(Number(port), hostname);
  const ended = new Promise<string>((resolve) => {
    let text = "";
    socket.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
    });
    socket.on("close", () => resolve(text));
    socket.on("error", () => {});
  });
  socket.write("POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n");
  const text = await ended;
  expect(text).toMatch(/^HTTP\/1\.1 404 /);
  expect(text.toLowerCase()).toContain("connection: close");
});
