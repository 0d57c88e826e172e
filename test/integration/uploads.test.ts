import { once } from "node:events";
import { type ClientRequest, createServer, request as httpRequest, type IncomingMessage, type Server } from "node:http";
import { createSeededRandom } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, errorOf, rawConnection } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const type = "multipart/form-data; boundary=cut";
const part = (head: string, value: Buffer | string): Buffer =>
  Buffer.concat([
    Buffer.from(`--cut\r\nContent-Disposition: form-data; ${head}\r\n\r\n`),
    Buffer.from(value as Buffer),
    Buffer.from("\r\n"),
  ]);
const model = (name: string): Buffer => part('name="model"', name);
/** A file of bytes that depend on `seed`. */
const file = (sizeBytes: number, seed = 1): Buffer =>
  part('name="file"; filename="a.wav"\r\nContent-Type: audio/wav', content(sizeBytes, seed));
const content = (sizeBytes: number, seed: number): Buffer => {
  const bytes = Buffer.alloc(sizeBytes);
  const random = createSeededRandom(seed);
  for (let at = 0; at < Math.min(sizeBytes, 65_536); at++) bytes[at] = random.integer(256);
  // No part of the form's delimiter, and every byte but its line ends.
  return bytes.fill(Buffer.from(Array.from({ length: 240 }, (_, byte) => byte + 16)), Math.min(sizeBytes, 65_536));
};
const form = (...parts: readonly Buffer[]): Buffer => Buffer.concat([...parts, Buffer.from("--cut--\r\n")]);

const post = (router: RunningRouter, body: Buffer, path = "/v1/audio/transcriptions", headers = {}) =>
  call(router.url + path, { method: "POST", headers: { "content-type": type, ...headers }, body });

/** A form whose bytes a test sends when it likes. */
function openForm(router: RunningRouter, headers: Readonly<Record<string, string>> = {}): ClientRequest {
  const open = httpRequest(`${router.url}/v1/audio/transcriptions`, {
    method: "POST",
    headers: { "content-type": type, ...headers },
    agent: false,
  });
  open.on("error", () => {});
  rig.own(() => open.destroy());
  return open;
}

interface Upload {
  readonly request: IncomingMessage;
  /** How many bytes of the form have come. */
  sizeBytes: number;
  readonly received: Buffer;
  isComplete: boolean;
  isClosed: boolean;
}

/** An engine that shows how much of a form has come. */
async function slowEngine(onUpload: (upload: Upload) => void = () => {}) {
  const uploads: Upload[] = [];
  const server: Server = createServer((request, response) => {
    if (request.method === "GET") {
      response.end(request.url === "/v1/models" ? '{"object":"list","data":[{"id":"tiny"}]}' : "");
      return;
    }
    const chunks: Buffer[] = [];
    const upload: Upload = {
      ...{ request, sizeBytes: 0, isComplete: false, isClosed: false },
      get received() {
        return Buffer.concat(chunks);
      },
    };
    uploads.push(upload);
    request.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      upload.sizeBytes += chunk.length;
    });
    request.on("error", () => {});
    request.on("close", () => {
      upload.isClosed = true;
    });
    request.on("end", () => {
      upload.isComplete = true;
      response.writeHead(200, { "content-type": "application/json" }).end('{"text":"hello"}');
    });
    onUpload(upload);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  rig.own(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as { port: number };
  return { url: `http://127.0.0.1:${port}`, id: `127.0.0.1:${port}`, uploads };
}

const answerOf = async (open: ClientRequest): Promise<number | undefined> =>
  ((await once(open, "response")) as [IncomingMessage])[0].statusCode;

test("forms go to an engine of their model, wherever it stands in them, byte for byte", async () => {
  const [alpha, beta] = await Promise.all(
    ["alpha", "beta"].map((name) => httpEngine(rig, ({ response }) => response.end("{}"), { models: [name] })),
  );
  const router = await rig.router({ engines: [alpha!.url, beta!.url] });
  for (const path of ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits"]) {
    for (const [name, engine] of [
      ["alpha", alpha!],
      ["beta", beta!],
    ] as const) {
      for (const sizeBytes of [10, 300_000, 3_000_000]) {
        for (const body of [form(model(name), file(sizeBytes)), form(file(sizeBytes), model(name))]) {
          const answer = await post(router, body, path);
          expect([answer.status, answer.headers["x-espalier-engine"]]).toEqual([200, engine.id]);
          expect(engine.requests.at(-1)?.body.equals(body)).toBe(true);
          expect(engine.requests.at(-1)?.headers["content-length"]).toBe(String(body.length));
        }
      }
    }
  }
  await router.untilIdle();
  const metrics = await router.metrics();
  for (const endpoint of ["transcriptions", "translations", "image_edits"])
    expect(metrics.sum("espalier_requests_total", { endpoint, outcome: "answered" })).toBe(12);
});

test("an alias becomes the model that it stands for, and the length of the form with it", async () => {
  const engine = await httpEngine(rig, ({ response }) => response.end("{}"), { models: ["whisper-large"] });
  const router = await rig.router({ engines: [engine.url], config: { models: { aliases: { w: "whisper-large" } } } });
  for (const order of [
    (name: string) => form(model(name), file(200_000)),
    (name: string) => form(file(200_000), model(name)),
  ]) {
    expect((await post(router, order("w"))).status).toBe(200);
    expect(engine.requests.at(-1)?.body.equals(order("whisper-large"))).toBe(true);
  }
});

test("a form is sent while it arrives once its model is known; of a long one little is held", async () => {
  const engine = await slowEngine();
  const router = await rig.router({ engines: [engine.url] });
  const body = form(model("tiny"), file(8_000_000));
  const open = openForm(router, { "content-length": String(body.length) });
  open.write(body.subarray(0, 4_000_000));
  await waitFor(() => (engine.uploads[0]?.sizeBytes ?? 0) >= 3_900_000, { what: "a part of the form" });
  expect(engine.uploads[0]?.isComplete).toBe(false);
  const heldBytes = async () => (await router.metrics()).sum("espalier_request_body_bytes");
  await waitFor(async () => (await heldBytes()) === 1_048_576, { what: "a smaller reservation" });
  open.end(body.subarray(4_000_000));
  expect(await answerOf(open)).toBe(200);
  expect(engine.uploads[0]?.received.equals(body)).toBe(true);

  const chunked = openForm(router);
  chunked.write(body.subarray(0, 1_000));
  chunked.end(body.subarray(1_000));
  expect(await answerOf(chunked)).toBe(200);
  expect(engine.uploads[1]?.request.headers["transfer-encoding"]).toBe("chunked");
  expect(engine.uploads[1]?.received.equals(body)).toBe(true);
  await router.untilIdle();
});

test("with the file first nothing is sent before the model, and the whole form is bounded", async () => {
  const engine = await slowEngine();
  const router = await rig.router({ engines: [engine.url], config: { limits: { "max-body-bytes": 1_000_000 } } });
  const body = form(file(900_000), model("tiny"));
  const open = openForm(router);
  open.write(body.subarray(0, 800_000));
  await waitFor(async () => (await router.metrics()).sum("espalier_request_body_bytes") >= 800_000, { what: "bytes" });
  expect(engine.uploads).toEqual([]);
  open.end(body.subarray(800_000));
  expect(await answerOf(open)).toBe(200);
  expect(engine.uploads[0]?.received.equals(body)).toBe(true);

  for (const headers of [{}, { "content-length": "1000001" }]) {
    const long = openForm(router, headers);
    long.end(Buffer.concat([form(file(999_700), model("tiny")), Buffer.alloc(1_000_001)]).subarray(0, 1_000_001));
    expect(await answerOf(long)).toBe(413);
  }
  expect(engine.uploads).toHaveLength(1);
  await router.untilIdle();
});

test("the same file goes to the same engine, other files to all of them", async () => {
  const engines = await Promise.all([1, 2, 3, 4].map(() => httpEngine(rig, ({ response }) => response.end("{}"))));
  const router = await rig.router({ engines: engines.map(({ url }) => url) });
  const engineOf = async (seed: number, more: readonly Buffer[] = []) =>
    (await post(router, form(model("tiny"), ...more, file(200_000, seed)))).headers["x-espalier-engine"];
  // Each new file goes to an engine drawn of four: that one gets none of 64 happens once in 25 million runs.
  const first: unknown[] = [];
  while (first.length < 16 || (first.length < 64 && new Set(first).size < 4))
    first.push(await engineOf(first.length + 1));
  expect(new Set(first).size).toBe(4);
  const seeds = first.map((_, at) => at + 1);
  const again: unknown[] = [];
  for (const seed of seeds) again.push(await engineOf(seed, [part('name="language"', "en")]));
  expect(again).toEqual(first);
  const long = form(model("tiny"), file(6_000_000, 99));
  await post(router, long);
  // A file is known by 512 blocks of 16 tokens at most.
  expect((await post(router, long)).headers["x-espalier-cache-hit-tokens"]).toBe("8192");
});

test("an engine that fails is followed by another one while all of the form is held, and by none after that", async () => {
  const broken = await slowEngine(({ request }) => {
    request.once("data", () => request.socket.resetAndDestroy());
  });
  const engine = await slowEngine();
  const router = await rig.router({ engines: [broken.url, engine.url], config: { policy: "round_robin" } });
  for (let round = 0; round < 2; round++) {
    const answer = await post(router, form(model("tiny"), file(300_000, round)));
    expect([answer.status, answer.headers["x-espalier-engine"]]).toEqual([200, engine.id]);
  }
  const late = await slowEngine(({ request }) => {
    request.on("data", () => {
      if (late.uploads.at(-1)!.sizeBytes > 2_000_000) request.socket.resetAndDestroy();
    });
  });
  const other = await rig.router({ engines: [late.url, engine.url], config: { policy: "round_robin" } });
  const before = engine.uploads.length;
  const codes: unknown[] = [];
  for (let round = 0; round < 2; round++) {
    const answer = await post(other, form(model("tiny"), file(6_000_000)));
    codes.push(answer.status === 200 ? 200 : errorOf(answer).code);
  }
  expect([...codes].sort()).toEqual([200, "upstream_reset"]);
  expect(engine.uploads.length).toBe(before + 1);
  await other.untilIdle();
});

test("a reserved field or a second model behind the file ends the request before an engine has all of it", async () => {
  const engine = await slowEngine();
  const router = await rig.router({ engines: [engine.url] });
  for (const [field, code] of [
    [part('name="kv_transfer_params"', "{}"), "reserved_field"],
    [part('name="vllm_xargs"', '{"kv_transfer_params":[]}'), "reserved_field"],
    [model("other"), "duplicate_key"],
    [part('name="vllm_xargs"', `"${"x".repeat(1_048_577)}"`), "invalid_body"],
  ] as const) {
    const body = form(model("tiny"), file(2_000_000), field);
    const open = openForm(router, { "content-length": String(body.length) });
    open.write(body.subarray(0, 1_500_000));
    const sent = engine.uploads.length;
    await waitFor(() => engine.uploads.length > sent || engine.uploads.at(-1)?.isClosed === false, { what: "upload" });
    open.end(body.subarray(1_500_000));
    const [answer] = (await once(open, "response")) as [IncomingMessage];
    let text = "";
    for await (const chunk of answer) text += chunk;
    expect([answer.statusCode, JSON.parse(text)]).toMatchObject([400, { error: { code } }]);
    await waitFor(() => engine.uploads.every(({ isClosed }) => isClosed), { what: "closed uploads" });
    expect(engine.uploads.some(({ isComplete }) => isComplete)).toBe(false);
  }
  expect((await router.engines())[0]?.breaker.state).toBe("closed");
  await router.untilIdle();
  const heldBytes = async () => (await router.metrics()).sum("espalier_request_body_bytes");
  await waitFor(async () => (await heldBytes()) === 0, { what: "no bytes held" });
});

test("a client that goes in the middle of a form takes the engine's request with it", async () => {
  const engine = await slowEngine();
  const router = await rig.router({ engines: [engine.url] });
  const open = openForm(router, { "content-length": "5000000" });
  open.write(form(model("tiny"), file(1_000_000)).subarray(0, 900_000));
  await waitFor(() => (engine.uploads[0]?.sizeBytes ?? 0) > 0, { what: "a part of the form" });
  open.destroy();
  await waitFor(() => engine.uploads[0]?.isClosed, { what: "a closed upload" });
  expect(engine.uploads[0]?.isComplete).toBe(false);
  await router.untilIdle();
});

test("an engine that answers before it has read the form is heard, and the client's connection goes on", async () => {
  const early = await httpEngine(rig, ({ response }) => response.end("{}"));
  const router = await rig.router({ engines: [early.url] });
  const connection = await rawConnection(router.port);
  const send = (body: Buffer): void => {
    const head = `POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-type: ${type}\r\n`;
    connection.write(`${head}content-length: ${body.length}\r\n\r\n`);
    connection.write(body);
  };
  const heads = (): readonly string[] =>
    [...connection.received().matchAll(/HTTP\/1.1 (\d+)/g)].map(([, code = ""]) => code);
  // The router itself answers early, too.
  send(form(model("none"), file(4_000_000)));
  await waitFor(() => heads().length === 1, { what: "a refusal" });
  const known = form(model("tiny"), file(4_000_000));
  send(known);
  await waitFor(() => heads().length === 2, { what: "an answer" });
  expect(heads()).toEqual(["404", "200"]);

  const refusing = await slowEngine(({ request }) => {
    const socket = request.socket;
    request.removeAllListeners("end");
    socket.write("HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno!");
  });
  const other = await rig.router({ engines: [refusing.url] });
  const answer = await post(other, known);
  expect([answer.status, answer.text]).toEqual([413, "no!"]);
  await other.untilIdle();
});
