import { waitFor } from "@espalier/testing";
import {
  APIConnectionError,
  APIError,
  AuthenticationError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
  type OpenAI,
  RateLimitError,
} from "openai";
import { afterEach, expect, test } from "vitest";
import { createRig } from "../../integration/rig.ts";
import { collect, failureOf, openAiClient } from "./client.ts";

const rig = createRig();
afterEach(() => rig.close());

async function start(config = {}, sim = {}) {
  const sims = await rig.sims(1, sim);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  return { sim: sims[0]!, router, client: openAiClient(router) };
}

const messages = [{ role: "user" as const, content: "hello" }];
const ask = (client: OpenAI, fields = {}) =>
  client.chat.completions.create({ model: "tiny", messages, max_tokens: 3, ...fields });

type Call = (client: OpenAI) => Promise<unknown>;

test.each<[string, Call, object]>([
  ["n out of range", (client) => ask(client, { n: 16_385 }), { param: "n", code: "invalid_value" }],
  ["model of a wrong type", (client) => ask(client, { model: 7 }), { param: "model", code: "invalid_type" }],
  ["no messages", (client) => ask(client, { messages: undefined }), { param: "messages", code: "missing_field" }],
  [
    "no prompt",
    (client) => client.completions.create({ model: "tiny", prompt: undefined as unknown as string }),
    { param: "prompt", code: "missing_field" },
  ],
  [
    "no input",
    (client) => client.embeddings.create({ model: "tiny", input: undefined as unknown as string }),
    { param: "input", code: "missing_field" },
  ],
])("%s is a BadRequestError that names the field", async (_, call, expected) => {
  const { client } = await start();
  const error = await failureOf(call(client));
  expect(error).toBeInstanceOf(BadRequestError);
  expect(error).toMatchObject({ status: 400, type: "invalid_request_error", ...expected });
  expect((error as APIError).requestID).toMatch(/^req-/);
});

test.each([
  ["max_tokens", { max_tokens: "many" }],
  ["n", { n: 0 }],
  ["stream", { stream: "maybe" }],
])("%s of a wrong type is refused by the engine, as a BadRequestError that names the field", async (param, fields) => {
  const { client } = await start();
  const error = await failureOf(ask(client, fields));
  expect(error).toBeInstanceOf(BadRequestError);
  expect(error).toMatchObject({ status: 400, type: "BadRequestError", param });
});

test("what the engine refuses comes with the engine's own words", async () => {
  const { client } = await start();
  const error = await failureOf(ask(client, { messages: [{ role: "user", content: [{ type: "text" }] }] }));
  expect(error).toBeInstanceOf(BadRequestError);
  expect(error).toMatchObject({
    type: "BadRequestError",
    code: 400,
    message: expect.stringContaining("Field required"),
  });
});

test.each(["chat", "embeddings", "retrieve"])("a model that nobody serves is a NotFoundError (%s)", async (kind) => {
  const { client } = await start();
  const calls: Record<string, () => Promise<unknown>> = {
    chat: () => ask(client, { model: "gpt-5" }),
    embeddings: () => client.embeddings.create({ model: "gpt-5", input: "x" }),
    retrieve: async () => client.models.retrieve("gpt-5"),
  };
  const error = await failureOf(calls[kind]!());
  expect(error).toBeInstanceOf(NotFoundError);
  expect(error).toMatchObject({ status: 404, code: "model_not_found", type: "not_found_error" });
  expect((error as Error).message).toContain('"gpt-5"');
});

test("a path that is not served is a NotFoundError", async () => {
  const { client } = await start();
  const error = await failureOf(client.moderations.create({ model: "tiny", input: "x" }));
  expect(error).toBeInstanceOf(NotFoundError);
  expect(error).toMatchObject({ code: "path_not_found" });
});

test("a key that is not known, or none at all, is an AuthenticationError; a known one passes", async () => {
  const key = "key-of-the-team";
  const { router } = await start({ "api-keys": [{ name: "team", key }] });
  const wrong = await failureOf(ask(openAiClient(router, { apiKey: "key-of-others" })));
  expect(wrong).toBeInstanceOf(AuthenticationError);
  expect(wrong).toMatchObject({ status: 401, code: "invalid_api_key", type: "authentication_error" });
  const none = await failureOf(ask(openAiClient(router, { defaultHeaders: { authorization: null } })));
  expect(none).toBeInstanceOf(AuthenticationError);
  expect(none).toMatchObject({ code: "missing_api_key" });
  expect((await ask(openAiClient(router, { apiKey: key }))).choices).toHaveLength(1);
});

test("past the limit of concurrent requests is a RateLimitError that says when to come back", async () => {
  const { router, client, sim } = await start({ limits: { "max-concurrent-requests": 1 } });
  await sim.fault({ kind: "hang-before-headers", count: 1 });
  const abort = new AbortController();
  const held = failureOf(client.chat.completions.create({ model: "tiny", messages }, { signal: abort.signal }));
  const inFlight = async () => (await router.admin("GET", "/admin/status")).json.inFlight === 1;
  await waitFor(inFlight, { what: "request in flight" });
  const error = await failureOf(ask(client));
  expect(error).toBeInstanceOf(RateLimitError);
  expect(error).toMatchObject({ status: 429, code: "overloaded", type: "rate_limit_error" });
  expect((error as RateLimitError).headers.get("retry-after")).toBe("1");
  abort.abort();
  await held;
  await router.untilIdle();
  expect((await ask(client)).choices).toHaveLength(1);
});

test.each([
  [429, RateLimitError],
  [500, InternalServerError],
  [503, InternalServerError],
])("the engine's status %i keeps its class, its body and its Retry-After", async (status, kind) => {
  const { client, sim } = await start();
  await sim.fault({ kind: "status", status });
  const error = await failureOf(ask(client));
  expect(error).toBeInstanceOf(kind);
  expect(error).toMatchObject({ status, message: expect.stringContaining("injected fault") });
  expect((error as APIError).headers?.get("retry-after")).toBe(status === 500 ? null : "1");
});

test.each([
  ["reset-before-headers", 502, "upstream_reset"],
  ["garbage", 502, "upstream_protocol_error"],
])("an engine that fails with %s is an InternalServerError, %i %s", async (kind, status, code) => {
  const { client, sim } = await start();
  await sim.fault({ kind });
  const error = await failureOf(ask(client));
  expect(error).toBeInstanceOf(InternalServerError);
  expect(error).toMatchObject({ status, code, type: "server_error" });
});

test("an engine that does not answer in time is an InternalServerError, 504", async () => {
  const { client, sim } = await start({ timeouts: { "first-byte": "150ms" } });
  await sim.fault({ kind: "hang-before-headers" });
  expect(await failureOf(ask(client))).toMatchObject({ status: 504, code: "upstream_timeout" });
});

test("no engine at all is an InternalServerError, 503 with Retry-After", async () => {
  const client = openAiClient(await rig.router());
  const error = await failureOf(ask(client));
  expect(error).toBeInstanceOf(InternalServerError);
  expect(error).toMatchObject({ status: 503, code: "no_engine_available" });
  expect((error as APIError).headers?.get("retry-after")).toBe("1");
});

test.each(["cut-mid-stream", "reset-mid-stream"])(
  "a stream that the engine leaves unfinished (%s) ends in an error, not in a short answer",
  async (kind) => {
    const { client, sim } = await start();
    await sim.fault({ kind, afterTokens: 5 });
    const pieces: string[] = [];
    const read = async (): Promise<void> => {
      const stream = await client.chat.completions.create({ model: "tiny", messages, max_tokens: 50, stream: true });
      for await (const chunk of stream) pieces.push(chunk.choices[0]?.delta.content ?? "");
    };
    const error = await failureOf(read());
    expect(pieces.join("").trim().split(/\s+/)).toHaveLength(5);
    expect(error).toBeInstanceOf(APIError);
    expect(error).toMatchObject({ code: "upstream_cut_short", type: "server_error" });
  },
);

test("an unfinished answer that is not streamed is an error too: its connection ends before its length is reached", async () => {
  const { client, sim } = await start();
  await sim.fault({ kind: "reset-mid-stream", afterTokens: 2 });
  expect(await failureOf(ask(client))).toMatchObject({ message: "terminated" });
});

test("errors of a stream that has not begun have their class", async () => {
  const { client, sim } = await start();
  await sim.fault({ kind: "status", status: 500 });
  const stream = client.chat.completions.create({ model: "tiny", messages, stream: true });
  expect(await failureOf(stream.then(collect))).toBeInstanceOf(InternalServerError);
});

test("a router that is gone is an APIConnectionError", async () => {
  const { router, client } = await start();
  await router.router.stop();
  expect(await failureOf(ask(client))).toBeInstanceOf(APIConnectionError);
});

test("a body past the limit is refused with 413", async () => {
  const { client } = await start({ limits: { "max-body-bytes": "64KiB" } });
  const error = await failureOf(ask(client, { messages: [{ role: "user", content: "x".repeat(70_000) }] }));
  expect(error).toMatchObject({ status: 413, code: "body_too_large" });
});
