import { createHash } from "node:crypto";
import { afterEach, expect, test } from "vitest";
import { httpEngine, type SeenRequest } from "../../integration/engines.ts";
import { createRig } from "../../integration/rig.ts";
import { collect, openAiClient } from "./client.ts";

const rig = createRig();
afterEach(() => rig.close());

const unicode =
  'Spalier 🌳 — Grüße, 日本語, עברית, \u0000\u001f\u2028\u2029 \ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67 \\ " </script>';

async function start(answer: (request: SeenRequest) => void) {
  const engine = await httpEngine(rig, answer);
  return { engine, client: openAiClient(await rig.router({ engines: [engine.url] })) };
}

const contentOf = ({ body }: SeenRequest): string => JSON.parse(body.toString("utf8")).messages[0].content as string;

function echo(seen: SeenRequest): void {
  const message = { role: "assistant", content: contentOf(seen) };
  const body = JSON.stringify({ id: "c", object: "chat.completion", choices: [{ index: 0, message }] });
  seen.response.writeHead(200, { "content-type": "application/json" }).end(body);
}

const ask = (content: string) => ({ model: "tiny", messages: [{ role: "user" as const, content }] });

test("text of every kind reaches the engine and comes back unchanged", async () => {
  const { engine, client } = await start(echo);
  const completion = await client.chat.completions.create(ask(unicode));
  expect(contentOf(engine.requests[0]!)).toBe(unicode);
  expect(completion.choices[0]!.message.content).toBe(unicode);
});

test("a stream whose bytes are cut anywhere, inside characters too, comes together unchanged", async () => {
  const { client } = await start(({ response }) => {
    const event = (delta: object) =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", choices: [{ index: 0, delta }] })}\n\n`;
    const bytes = Buffer.from(`${[...unicode].map((content) => event({ content })).join("")}data: [DONE]\n\n`);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const pieces = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, at) => bytes.subarray(at * 7, at * 7 + 7));
    const next = (): void => {
      const piece = pieces.shift();
      if (piece) response.write(piece, () => setImmediate(next));
      else response.end();
    };
    next();
  });
  const chunks = await collect(await client.chat.completions.create({ ...ask("x"), stream: true }));
  expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("")).toBe(unicode);
});

test("a prompt of 16 MiB arrives byte for byte", async () => {
  const digestOf = (text: string | Buffer): string => createHash("sha256").update(text).digest("hex");
  const { engine, client } = await start((seen) => {
    const message = { role: "assistant", content: digestOf(contentOf(seen)) };
    seen.response.writeHead(200, { "content-type": "application/json" });
    seen.response.end(JSON.stringify({ choices: [{ index: 0, message }] }));
  });
  const prompt = "väter und söhne, ".repeat(900_000);
  const completion = await client.chat.completions.create(ask(prompt));
  expect(engine.requests[0]!.body.length).toBeGreaterThan(16 * 1_048_576);
  expect(completion.choices[0]!.message.content).toBe(digestOf(prompt));
});

test("an answer of 8 MiB comes back byte for byte", async () => {
  const content = "🌳 und wald, ".repeat(600_000);
  const { client } = await start(({ response }) => {
    const message = { role: "assistant", content };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ choices: [{ index: 0, message }] }));
  });
  const completion = await client.chat.completions.create(ask("x"));
  expect(completion.choices[0]!.message.content === content).toBe(true);
});

test("numbers beyond 53 bits and fields in odd places stay as the client wrote them", async () => {
  const { engine, client } = await start(echo);
  const body = `{"model":"tiny","messages":[{"role":"user","content":"x"}],"seed":12345678901234567890,"logit_bias":{"1":-100}}`;
  await client.post("/chat/completions", { body, headers: { "content-type": "application/json" } });
  expect(engine.requests[0]!.body.toString("utf8")).toBe(body);
});
