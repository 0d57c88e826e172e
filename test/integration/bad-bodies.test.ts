import { afterAll, beforeAll, expect, test } from "vitest";
import { type Answer, call, chat, errorOf, type Json, post, rawConnection, rawPost } from "./client.ts";
import { type HttpEngine, jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
const limitBytes = 4_096;
const nesting = 8;
let router: RunningRouter;
let engine: HttpEngine;

beforeAll(async () => {
  engine = await jsonEngine(rig, '{"ok":true}');
  const limits = { "max-body-bytes": limitBytes, "max-nesting": nesting };
  router = await rig.router({ engines: [engine.url], config: { limits } });
});
afterAll(() => rig.close());

const chatUrl = (): string => `${router.url}/v1/chat/completions`;

/** The refused request reached no engine, and the router answers the next one. */
async function expectUnharmed(): Promise<void> {
  const before = engine.requests.length;
  const body = JSON.stringify(chat({ marker: before }));
  const answer = await post(chatUrl(), body);
  expect([answer.status, answer.text]).toEqual([200, '{"ok":true}']);
  expect(engine.requests).toHaveLength(before + 1);
  expect(engine.requests.at(-1)?.body.toString()).toBe(body);
}

async function expectRefusal(answer: Answer, status: number, code: string, param: string | null): Promise<void> {
  expect([answer.status, errorOf(answer)]).toEqual([
    status,
    { message: expect.any(String), type: "invalid_request_error", param, code },
  ]);
  expect(answer.headers["content-type"]).toBe("application/json");
  expect(answer.headers["x-request-id"]).toMatch(/^req-[0-9a-f]{24}$/);
  expect(answer.headers["retry-after"]).toBeUndefined();
  await expectUnharmed();
}

const ok = '"model":"tiny","messages":[{"role":"user","content":"x"}]';

test.each<readonly [string, string | Buffer, string, string | null]>([
  ["nothing", "", "invalid_json", null],
  ["white space", " \n", "invalid_json", null],
  ["half an object", `{${ok}`, "invalid_json", null],
  ["a comma too many", `{${ok},}`, "invalid_json", null],
  ["text behind the object", `{${ok}} x`, "invalid_json", null],
  ["two objects", `{${ok}}{${ok}}`, "invalid_json", null],
  ["single quotes", "{'model':'tiny'}", "invalid_json", null],
  ["an unfinished string", '{"model":"tin', "invalid_json", null],
  ["a bad escape", '{"model":"\\x"}', "invalid_json", null],
  ["NaN", `{${ok},"temperature":NaN}`, "invalid_json", null],
  ["a byte order mark", `\ufeff{${ok}}`, "invalid_json", null],
  ["a list", `[{${ok}}]`, "invalid_body", null],
  ["a string", '"x"', "invalid_body", null],
  ["null", "null", "invalid_body", null],
  ["bytes that are not UTF-8", Buffer.from(`{${ok},"x":"\xff"}`, "latin1"), "invalid_utf8", null],
  ["an overlong encoding", Buffer.from(`{${ok},"x":"\xc0\xaf"}`, "latin1"), "invalid_utf8", null],
  ["a key twice", `{${ok},"model":"other"}`, "duplicate_key", "model"],
  ["a key twice, once escaped", `{${ok},"mod\\u0065l":"other"}`, "duplicate_key", "model"],
  ["a key twice inside", `{${ok},"x":[{"y":1,"z":2,"y":3}]}`, "duplicate_key", "y"],
  ["a key twice inside, once escaped", `{${ok},"x":{"model":1,"mod\\u0065l":2}}`, "duplicate_key", "model"],
  ["__proto__", `{${ok},"__proto__":{"admin":true}}`, "forbidden_key", "__proto__"],
  ["__proto__ inside, escaped", `{${ok},"x":{"\\u005f_proto__":{}}}`, "forbidden_key", "__proto__"],
  ["one level too many", `{${ok},"x":${"[".repeat(nesting)}${"]".repeat(nesting)}}`, "nesting_too_deep", null],
  ["a thousand open brackets", `{"x":${"[".repeat(1_000)}`, "nesting_too_deep", null],
])("%s: 400 %#", async (_, body, code, param) => {
  await expectRefusal(await post(chatUrl(), body), 400, code, param);
});

test("nesting at the limit, a constructor key and every kind of null are fine", async () => {
  const deep = `${"[".repeat(nesting - 1)}${"]".repeat(nesting - 1)}`;
  const answer = await post(chatUrl(), `{${ok},"x":${deep},"constructor":{"prototype":1},"n":null,"user":null}`);
  expect(answer.status).toBe(200);
});

test.each<readonly [string, Json, string, string]>([
  ["/v1/chat/completions", { model: "tiny" }, "missing_field", "messages"],
  ["/v1/chat/completions", { model: "tiny", messages: null }, "missing_field", "messages"],
  ["/v1/chat/completions", chat({ model: 7 }), "invalid_type", "model"],
  ["/v1/chat/completions", chat({ model: "m".repeat(257) }), "invalid_value", "model"],
  ["/v1/chat/completions", chat({ n: 16_385 }), "invalid_value", "n"],
  ["/v1/completions", { model: "tiny" }, "missing_field", "prompt"],
  ["/v1/embeddings", { model: "tiny" }, "missing_field", "input"],
  ["/v1/responses", { model: "tiny" }, "missing_field", "input"],
  ["/v1/rerank", { query: "q" }, "missing_field", "documents"],
  ["/v1/score", {}, "missing_field", "text_1"],
  ["/generate", { sampling_params: { max_new_tokens: 1 } }, "missing_field", "text"],
  ["/tokenize", {}, "missing_field", "prompt"],
])("%s with %j: 400 %s at %s", async (path, body, code, param) => {
  await expectRefusal(await post(router.url + path, body), 400, code, param);
});

// The router refused values of types that it did not expect, though engines take many of them: vLLM and SGLang read numbers
// from strings and booleans from words, llama.cpp takes -1 for no limit, and unknown fields may have any type.
const messages = [{ role: "user", content: "x" }];
test.each<readonly [string, Json]>([
  ["/v1/chat/completions", { messages }],
  ["/v1/chat/completions", { model: null, messages }],
  ["/v1/chat/completions", { model: "", messages }],
  ["/v1/chat/completions", { model: "tiny", messages: "hi" }],
  ["/v1/chat/completions", { model: "tiny", messages: [] }],
  ["/v1/chat/completions", { model: "tiny", messages: ["hi", null, 1, [[]], { content: 1 }] }],
  ["/v1/chat/completions", { model: "tiny", messages: { role: "user" } }],
  ["/v1/chat/completions", chat({ stream: "yes" })],
  ["/v1/chat/completions", chat({ stream: "false" })],
  ["/v1/chat/completions", chat({ stream: 1, stream_options: { include_usage: false } })],
  ["/v1/chat/completions", chat({ stream: true, stream_options: [] })],
  ["/v1/chat/completions", chat({ stream: true, stream_options: { continuous_usage_stats: true } })],
  ["/v1/chat/completions", chat({ max_tokens: "3", n: "1", priority: "3" })],
  ["/v1/chat/completions", chat({ max_tokens: 0 })],
  ["/v1/chat/completions", chat({ max_tokens: -1 })],
  ["/v1/chat/completions", chat({ max_completion_tokens: 1.5, n: 0, priority: "high" })],
  ["/v1/chat/completions", chat({ user: {}, metadata: "x", tools: "none" })],
  ["/v1/chat/completions", chat({ session_id: "s".repeat(1_025) })],
  ["/v1/chat/completions", chat({ session_id: 42, prompt_cache_key: [1], lora_path: 7 })],
  ["/v1/completions", { model: "tiny", prompt: { a: 1 } }],
  ["/v1/completions", { model: "tiny", prompt: [-1] }],
  ["/v1/completions", { model: "tiny", prompt: ["a", 1, [2, "b"], null] }],
  ["/v1/embeddings", { input: [] }],
  ["/v1/embeddings", { model: "tiny", input: [true] }],
  ["/v1/responses", { model: "tiny", input: "x", previous_response_id: 1 }],
  ["/v1/responses", { model: "tiny", input: 7 }],
  ["/v1/rerank", { documents: ["d"] }],
  ["/v1/rerank", { query: { content: [] }, documents: { content: [{ type: "text", text: "d" }] } }],
  ["/v1/score", { text_1: 5 }],
  ["/v1/messages", { model: "tiny", messages }],
  ["/v1/messages", { model: "tiny", max_tokens: "9", metadata: { user_id: 5 }, messages: [5] }],
  ["/generate", { text: "x", sampling_params: 4 }],
  ["/generate", { input_ids: "1,2" }],
  ["/tokenize", { prompt: 5 }],
  ["/detokenize", { tokens: "x" }],
])("%s with %j reaches the engine byte for byte", async (path, body) => {
  const text = JSON.stringify(body);
  const answer = await post(router.url + path, text);
  expect([answer.status, answer.text]).toEqual([200, '{"ok":true}']);
  expect(engine.requests.at(-1)?.body.toString()).toBe(text);
  await expectUnharmed();
});

test.each<readonly [Json | string, string]>([
  ["{", "not valid JSON"],
  [{ model: "tiny", max_tokens: 5 }, "messages is required"],
])("/v1/messages refuses %j in Anthropic's shape", async (body, words) => {
  const answer = await post(`${router.url}/v1/messages`, body);
  expect([answer.status, answer.json]).toEqual([
    400,
    {
      type: "error",
      error: { type: "invalid_request_error", message: expect.stringContaining(words) },
      request_id: answer.headers["x-request-id"],
    },
  ]);
  await expectUnharmed();
});

/** A request whose body is exactly this long. */
function sized(sizeBytes: number): string {
  const empty = JSON.stringify(chat({ pad: "" }));
  return JSON.stringify(chat({ pad: "p".repeat(sizeBytes - empty.length) }));
}

const chunked = { "content-type": "application/json", "transfer-encoding": "chunked" };

test("a body at the limit passes, with a length and in chunks", async () => {
  expect((await post(chatUrl(), sized(limitBytes))).status).toBe(200);
  const inChunks = await call(chatUrl(), { method: "POST", headers: chunked, body: sized(limitBytes) });
  expect(inChunks.status).toBe(200);
  expect(engine.requests.at(-1)?.body).toHaveLength(limitBytes);
});

test("a body one byte over the limit is refused with 413, with a length and in chunks", async () => {
  const withLength = await post(chatUrl(), sized(limitBytes + 1));
  await expectRefusal(withLength, 413, "body_too_large", null);
  const inChunks = await call(chatUrl(), { method: "POST", headers: chunked, body: sized(limitBytes + 1) });
  await expectRefusal(inChunks, 413, "body_too_large", null);
  const anthropic = await post(`${router.url}/v1/messages`, sized(limitBytes + 1));
  expect([anthropic.status, anthropic.json.error]).toEqual([
    413,
    { type: "request_too_large", message: expect.any(String) },
  ]);
});

test("a client that is still sending an oversized body reads the 413 before the end of the connection", async () => {
  const connection = await rawConnection(router.port);
  connection.write(`${rawPost("/v1/chat/completions", "").replace("content-length: 0", "content-length: 50000000")}`);
  for (let piece = 0; piece < 64; piece++) connection.write("x".repeat(65_536));
  const text = await connection.until(/"code":"body_too_large"/);
  expect(text).toMatch(/^HTTP\/1\.1 413 Payload Too Large\r\n/);
  expect(text).toMatch(/\r\nconnection: close\r\n/i);
  await connection.closed();
  await expectUnharmed();
});

test.each<readonly [Readonly<Record<string, string>>, string]>([
  [{ "content-type": "text/plain" }, "unsupported_media_type"],
  [{ "content-type": "application/x-www-form-urlencoded" }, "unsupported_media_type"],
  [{ "content-type": "multipart/form-data; boundary=x" }, "unsupported_media_type"],
  [{ "content-type": "application/jsonx" }, "unsupported_media_type"],
  [{ "content-type": ";" }, "unsupported_media_type"],
  [{ "content-type": "application/json; charset=utf-16" }, "unsupported_media_type"],
  [{ "content-type": 'application/json; a=b; Charset = "ISO-8859-1"' }, "unsupported_media_type"],
  [{ "content-type": "application/vnd.api+json;charset=utf-16le" }, "unsupported_media_type"],
  [{ "content-encoding": "gzip" }, "unsupported_encoding"],
  [{ "content-encoding": "br" }, "unsupported_encoding"],
  [{ "content-encoding": "identity, gzip" }, "unsupported_encoding"],
])("headers %j: 415 %s", async (headers, code) => {
  await expectRefusal(await post(chatUrl(), chat(), headers), 415, code, null);
});

test.each(["utf-8", '"UTF-8"', "utf8", "us-ascii"])("a body in %s is what bodies are", async (charset) => {
  const answer = await post(chatUrl(), chat(), { "content-type": `application/json; charset=${charset}` });
  expect(answer.status).toBe(200);
});

test("a session header of more than 1,024 characters passes", async () => {
  const sessionId = "s".repeat(1_025);
  expect((await post(chatUrl(), chat(), { "x-session-id": sessionId })).status).toBe(200);
  expect(engine.requests.at(-1)?.headers["x-session-id"]).toBe(sessionId);
  await expectUnharmed();
});
