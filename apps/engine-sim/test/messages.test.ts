import { expect, test } from "vitest";
import { at, chunksOf, type Json, startSim, type TestSim } from "./sim-client.ts";

const path = "/v1/messages";
const messages = [{ role: "user", content: "a brass telescope near the east stairs ".repeat(4) }];

const promptTokens = async (sim: TestSim, body: Json): Promise<number> =>
  (await sim.post("/tokenize", body)).json.count as number;

test("a whole answer is a message of Anthropic's API", async () => {
  const sim = await startSim();
  const answer = (await sim.post(path, { messages, max_tokens: 5 })).json;
  expect(answer).toEqual({
    id: expect.stringMatching(/^msg_[0-9a-f]{16}$/),
    type: "message",
    role: "assistant",
    model: "tiny",
    content: [{ type: "text", text: expect.stringMatching(/^([a-z]{3} ){5}$/) }],
    stop_reason: "max_tokens",
    stop_sequence: null,
    usage: {
      input_tokens: await promptTokens(sim, { messages }),
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 0,
      output_tokens: 5,
    },
  });
});

test("the events of a stream come in order and end with what the request took", async () => {
  const sim = await startSim();
  const whole = (await sim.post(path, { messages, max_tokens: 2 })).json;
  const events = await sim.events(path, { messages, max_tokens: 2, stream: true });
  expect(events.map(({ name }) => name)).toEqual([
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  const bodies = chunksOf(events);
  expect(bodies.map(({ type }) => type)).toEqual(events.map(({ name }) => name));
  const text = bodies.map((body) => at(body, "delta", "text") ?? "").join("");
  expect(text).toBe(at(whole, "content", 0, "text"));
  expect(bodies[0]?.message).toMatchObject({ type: "message", role: "assistant", content: [], stop_reason: null });
  expect(bodies.at(-2)).toMatchObject({ delta: { stop_reason: "max_tokens", stop_sequence: null } });
  expect(at(bodies.at(-2), "usage", "output_tokens")).toBe(2);
});

test("what came from the cache counts as read, not as input", async () => {
  const sim = await startSim();
  const total = await promptTokens(sim, { messages });
  await sim.post(path, { messages, max_tokens: 1 });
  const cached = total - 1 - ((total - 1) % 16);
  const expected = { input_tokens: total - cached, cache_read_input_tokens: cached };
  expect((await sim.post(path, { messages, max_tokens: 1 })).json.usage).toMatchObject(expected);
  const streamed = chunksOf(await sim.events(path, { messages, max_tokens: 1, stream: true }));
  expect(streamed.at(-2)?.usage).toMatchObject(expected);
  expect(at(streamed[0], "message", "usage", "input_tokens")).toBe(total);
});

test("the system prompt may be a text or blocks, and shares the cache with a chat's system message", async () => {
  const sim = await startSim();
  const system = "you are the assistant of an observatory ".repeat(4);
  await sim.post("/v1/chat/completions", {
    messages: [{ role: "system", content: system }, ...messages],
    max_tokens: 1,
  });
  const total = await promptTokens(sim, { messages: [{ role: "system", content: system }, ...messages] });
  for (const form of [system, [{ type: "text", text: system }]]) {
    const { usage } = (await sim.post(path, { system: form, messages, max_tokens: 1 })).json as { usage: Json };
    expect(usage.cache_read_input_tokens).toBeGreaterThan(64);
    expect((usage.input_tokens as number) + (usage.cache_read_input_tokens as number)).toBe(total);
  }
});

test("blocks of tools and images are part of the prompt", async () => {
  const sim = await startSim();
  const inputOf = async (content: unknown) =>
    at((await sim.post(path, { messages: [{ role: "user", content }], max_tokens: 1 })).json, "usage", "input_tokens");
  const empty = (await inputOf("")) as number;
  const source = { type: "base64", media_type: "image/png", data: "Y2F0" };
  expect(await inputOf([{ type: "image", source }])).toBe(empty + 256);
  expect(await inputOf([{ type: "tool_result", tool_use_id: "1", content: "four" }])).toBe(empty + 1);
  expect(await inputOf([{ type: "tool_result", tool_use_id: "1", content: [{ type: "text", text: "four" }] }])).toBe(
    empty + 1,
  );
  const use = { type: "tool_use", id: "1", name: "look", input: { at: "sky" } };
  const written = JSON.stringify({ name: "look", input: { at: "sky" } });
  expect(await inputOf([use])).toBe(empty + Math.floor(written.length / 4) + (written.length % 4));
});

test("an answer that ends by itself ends its turn", async () => {
  const sim = await startSim({ naturalLengthMean: 3 });
  expect((await sim.post(path, { messages, max_tokens: 4_000 })).json.stop_reason).toBe("end_turn");
});

test.each([
  [{ messages }, 400, "BadRequestError"],
  [{ messages: [{ role: "user", content: [{ text: "x" }] }], max_tokens: 3 }, 400, "BadRequestError"],
  [{ messages: [{ role: "user", content: [{ type: "text" }] }], max_tokens: 3 }, 400, "BadRequestError"],
  [{ messages: [{ role: 3 }], max_tokens: 3 }, 400, "BadRequestError"],
  [{ messages, max_tokens: 3, model: "none" }, 404, "NotFoundError"],
])("refuses %j in Anthropic's form", async (body, status, type) => {
  const sim = await startSim();
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(status);
  expect(answer.json).toEqual({ type: "error", error: { type, message: expect.any(String) } });
});
