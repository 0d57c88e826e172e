import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  at,
  capturedRequest,
  captureFolder,
  chunksOf,
  type Json,
  parseEvents,
  shapeOf,
  startSim,
  type TestSim,
} from "./sim-client.ts";

const path = "/v1/chat/completions";
const messages = [{ role: "user", content: "where is the star catalogue kept" }];

const contentOf = (body: Json): string => at(body, "choices", 0, "message", "content") as string;

/** Streams a chat and gives the chunks, having checked that `[DONE]` is last and only there. */
async function streamChat(sim: TestSim, body: Json, headers?: Record<string, string>): Promise<Json[]> {
  const events = await sim.events(path, { messages, stream: true, ...body }, headers);
  expect(events.map(({ data }) => data === "[DONE]").lastIndexOf(true)).toBe(events.length - 1);
  expect(events.filter(({ data }) => data === "[DONE]")).toHaveLength(1);
  return chunksOf(events);
}

const deltaText = (chunk: Json): string => (at(chunk, "choices", 0, "delta", "content") as string | undefined) ?? "";

for (const [flavour, capture] of [
  ["vllm", "vllm-0.32.0"],
  ["sglang", "sglang-0.5.23"],
] as const) {
  const folder = captureFolder(capture);

  test.skipIf(folder === undefined)(`a whole answer has the shape that ${capture} sent`, async () => {
    const captured = await capturedRequest(folder as string, "b.tools");
    const sim = await startSim({ parameters: { flavour } });
    const answer = await sim.post(path, { messages, max_tokens: 8 });
    expect(shapeOf(answer.json)).toEqual(shapeOf(captured.response));
    expect(answer.json.object).toBe(captured.response?.object);
    expect(at(answer.json, "choices", 0, "finish_reason")).toBe(at(captured.response, "choices", 0, "finish_reason"));
  });

  test.skipIf(folder === undefined)(`the chunks of a stream have the shapes that ${capture} sent`, async () => {
    const captured = await capturedRequest(folder as string, "a2.chat3-stream");
    const real = chunksOf(parseEvents(captured.sse ?? ""));
    const sim = await startSim({ parameters: { flavour } });
    const ours = await streamChat(sim, { max_tokens: 40, stream_options: { include_usage: true } });
    // A real engine may send two tokens in one chunk, so runs of chunks of one shape count once.
    const runsOf = (chunks: readonly Json[]) => {
      const shapes = chunks.map((chunk) => `${shapeOf(chunk)} ${at(chunk, "choices", 0, "finish_reason")}`);
      return shapes.filter((shape, index) => shape !== shapes[index - 1]);
    };
    expect(runsOf(ours)).toEqual(runsOf(real));
    expect(ours.map(deltaText).join("")).toHaveLength(40 * 4);
  });
}

test("the role comes first, then a word per token, the reason with the last one", async () => {
  const sim = await startSim();
  const chunks = await streamChat(sim, { max_tokens: 5 });
  expect(chunks).toHaveLength(6);
  expect(at(chunks[0], "choices", 0, "delta")).toEqual({ role: "assistant", content: "" });
  for (const chunk of chunks.slice(1)) expect(deltaText(chunk)).toMatch(/^[a-z]{3} $/);
  expect(chunks.map((chunk) => at(chunk, "choices", 0, "finish_reason"))).toEqual([...Array(5).fill(null), "length"]);
  expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
  expect(chunks.every((chunk) => !("usage" in chunk))).toBe(true);
});

test("SGLang tells the reason in a chunk of its own", async () => {
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  const chunks = await streamChat(sim, { max_tokens: 2 });
  expect(chunks.map((chunk) => at(chunk, "choices", 0, "finish_reason"))).toEqual([null, null, null, "length"]);
  expect(at(chunks[3], "choices", 0, "delta")).toEqual({ reasoning_content: null });
});

test("a stream says the same as a whole answer, and the same again next time", async () => {
  const sim = await startSim();
  const whole = contentOf((await sim.post(path, { messages, max_tokens: 30 })).json);
  const streamed = (await streamChat(sim, { max_tokens: 30 })).map(deltaText).join("");
  expect(streamed).toBe(whole);
  expect(Buffer.byteLength(whole)).toBe(30 * 4);
  const elsewhere = await startSim({ seed: 99 });
  expect(contentOf((await elsewhere.post(path, { messages, max_tokens: 30 })).json)).toBe(whole);
});

test("another prompt, seed or choice gives another answer", async () => {
  const sim = await startSim();
  const answers = await Promise.all([
    sim.post(path, { messages, max_tokens: 20 }),
    sim.post(path, { messages: [{ role: "user", content: "another" }], max_tokens: 20 }),
    sim.post(path, { messages, max_tokens: 20, seed: 7 }),
  ]);
  const texts = answers.map(({ json }) => contentOf(json));
  const several = await sim.post(path, { messages, max_tokens: 20, n: 3 });
  for (const index of [1, 2]) texts.push(at(several.json, "choices", index, "message", "content") as string);
  expect(new Set(texts).size).toBe(5);
  expect(at(several.json, "choices", 0, "message", "content")).toBe(texts[0]);
});

test("usage adds up, whole and streamed", async () => {
  const sim = await startSim();
  const { count } = (await sim.post("/tokenize", { messages })).json;
  const usage = (await sim.post(path, { messages, max_tokens: 9 })).json.usage;
  expect(usage).toEqual({
    prompt_tokens: count,
    total_tokens: (count as number) + 9,
    completion_tokens: 9,
    prompt_tokens_details: { cached_tokens: 0, created_cache_tokens: 0, multimodal_tokens: null },
    completion_tokens_details: null,
  });
  const chunks = await streamChat(sim, { max_tokens: 9, stream_options: { include_usage: true } });
  expect(chunks.at(-1)).toMatchObject({
    choices: [],
    usage: { prompt_tokens: count, total_tokens: (count as number) + 9, completion_tokens: 9 },
  });
  expect(chunks.slice(0, -1).every((chunk) => !("usage" in chunk))).toBe(true);
});

test("continuous usage counts along with the tokens", async () => {
  const sim = await startSim();
  const options = { include_usage: true, continuous_usage_stats: true };
  const chunks = await streamChat(sim, { max_tokens: 4, stream_options: options });
  expect(chunks.map((chunk) => at(chunk, "usage", "completion_tokens"))).toEqual([0, 1, 2, 3, 4, 4]);
  for (const { usage } of chunks) {
    const {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: total,
    } = usage as Record<string, number>;
    expect(total).toBe((prompt as number) + (completion as number));
  }
  const without = await streamChat(sim, { max_tokens: 1, stream_options: { continuous_usage_stats: true } });
  expect(without.every((chunk) => !("usage" in chunk))).toBe(true);
});

test.each(["vllm", "sglang"] as const)(
  "a next turn finds in the cache what the turn before computed: %s",
  async (flavour) => {
    const blockSize = 16;
    const sim = await startSim({ parameters: { flavour, blockSize } });
    const conversation: Json[] = [
      { role: "user", content: "tell me about the harbour pilot and his ledger ".repeat(5) },
    ];
    let computed = 0;
    for (let turn = 0; turn < 4; turn++) {
      const answer = (await sim.post(path, { messages: conversation, max_tokens: 37 })).json;
      const promptTokens = at(answer, "usage", "prompt_tokens") as number;
      // The blocks that the turn before filled, but the last token is always computed.
      const reusable = Math.min(computed, promptTokens - 1);
      expect(at(answer, "usage", "prompt_tokens_details", "cached_tokens")).toBe(reusable - (reusable % blockSize));
      // The last generated token is handed out, but has no KV yet.
      computed = promptTokens + 37 - 1;
      conversation.push({ role: "assistant", content: contentOf(answer) }, { role: "user", content: `go on ${turn}` });
    }
    expect(computed).toBeGreaterThan(200);
  },
);

test("vLLM tells how many tokens a chat put into the cache", async () => {
  const sim = await startSim({ parameters: { blockSize: 16 } });
  const long = [{ role: "user", content: "a".repeat(4 * 50) }];
  const details = async () => at((await sim.post(path, { messages: long })).json, "usage", "prompt_tokens_details");
  expect(await details()).toMatchObject({ cached_tokens: 0, created_cache_tokens: 48 });
  expect(await details()).toMatchObject({ cached_tokens: 48, created_cache_tokens: 0 });
});

test("n answers share one prompt in the usage, streamed by index", async () => {
  const sim = await startSim();
  const { count } = (await sim.post("/tokenize", { messages })).json as { count: number };
  const whole = (await sim.post(path, { messages, max_tokens: 6, n: 3 })).json;
  expect((whole.choices as Json[]).map(({ index }) => index)).toEqual([0, 1, 2]);
  expect(whole.usage).toMatchObject({ prompt_tokens: count, completion_tokens: 18, total_tokens: count + 18 });
  const chunks = await streamChat(sim, { max_tokens: 6, n: 3 });
  for (const index of [0, 1, 2]) {
    const own = chunks.filter((chunk) => at(chunk, "choices", 0, "index") === index);
    expect(own.map(deltaText).join("")).toBe(at(whole, "choices", index, "message", "content"));
    expect(at(own[0], "choices", 0, "delta", "role")).toBe("assistant");
    expect(at(own.at(-1), "choices", 0, "finish_reason")).toBe("length");
  }
});

test.each([
  [{}, 128],
  [{ max_tokens: 3 }, 3],
  [{ max_tokens: 3, max_completion_tokens: 5 }, 5],
  [{ max_tokens: null }, 128],
])("the length of the answer follows %j", async (limits, tokens) => {
  const sim = await startSim();
  const answer = (await sim.post(path, { messages, ...limits })).json;
  expect(answer.usage).toMatchObject({ completion_tokens: tokens });
  expect(contentOf(answer)).toHaveLength(tokens * 4);
  expect(at(answer, "choices", 0, "finish_reason")).toBe("length");
});

test("an unlimited answer gives way to the room that the model has left", async () => {
  const sim = await startSim({ parameters: { maxModelLength: 100 } });
  const { count } = (await sim.post("/tokenize", { messages })).json as { count: number };
  const answer = (await sim.post(path, { messages })).json;
  expect(answer.usage).toMatchObject({ completion_tokens: 100 - count, total_tokens: 100 });
});

test.each([
  [{ max_tokens: 50 }, "7", 7, "stop"],
  [{ max_tokens: 2 }, "7", 7, "length"],
  [{}, "300", 300, "length"],
])("a replayed length wins: %j with header %s", async (limits, header, tokens, reason) => {
  const sim = await startSim();
  const answer = (await sim.post(path, { messages, ...limits }, { "x-sim-output-tokens": header })).json;
  expect(answer.usage).toMatchObject({ completion_tokens: tokens });
  expect(at(answer, "choices", 0, "finish_reason")).toBe(reason);
});

test("natural lengths end answers early, around their mean, always the same for a prompt", async () => {
  const sim = await startSim({ naturalLengthMean: 40 });
  const ask = async (index: number, more: Json = {}) => {
    const body = { messages: [{ role: "user", content: `question ${index}` }], max_tokens: 1_000, ...more };
    const { json } = await sim.post(path, body);
    return {
      tokens: at(json, "usage", "completion_tokens") as number,
      reason: at(json, "choices", 0, "finish_reason"),
    };
  };
  const answers = await Promise.all(Array.from({ length: 80 }, (_, index) => ask(index)));
  const mean = answers.reduce((sum, { tokens }) => sum + tokens, 0) / answers.length;
  expect(mean).toBeGreaterThan(30);
  expect(mean).toBeLessThan(50);
  expect(answers.every(({ reason }) => reason === "stop")).toBe(true);
  expect(new Set(answers.map(({ tokens }) => tokens)).size).toBeGreaterThan(20);
  expect(await ask(3)).toEqual(answers[3]);
  expect(await ask(3, { ignore_eos: true })).toEqual({ tokens: 1_000, reason: "length" });
  const short = { max_tokens: 1 };
  expect(await ask(3, short)).toEqual({ tokens: 1, reason: "length" });
});

test("the caller's request id comes back, in the header and in the id of the answer", async () => {
  const sim = await startSim();
  const own = await sim.post(path, { messages, max_tokens: 1 }, { "x-request-id": 'abc"1' });
  expect(own.headers.get("x-request-id")).toBe('abc"1');
  expect(own.json.id).toBe('chatcmpl-abc"1');
  const given = await sim.post(path, { messages, max_tokens: 1 });
  expect(given.json.id).toBe(`chatcmpl-${given.headers.get("x-request-id")}`);
  expect(given.headers.get("x-request-id")).toMatch(/^[0-9a-f]{16}$/);
});

test("every name of the model is served and comes back; no name means the first", async () => {
  const sim = await startSim({ models: ["tiny", 'odd "name" é'] });
  const served = async (model: string | undefined) =>
    (await sim.post(path, { messages, max_tokens: 1, model })).json.model;
  expect(await served("tiny")).toBe("tiny");
  expect(await served('odd "name" é')).toBe('odd "name" é');
  expect(await served(undefined)).toBe("tiny");
  const chunks = await streamChat(sim, { model: 'odd "name" é', max_tokens: 2 });
  expect(chunks.every((chunk) => chunk.model === 'odd "name" é')).toBe(true);
});

test.each([
  ["vllm", ["first", "one", "five"]],
  ["sglang", ["first", "five", "one"]],
] as const)("%s puts those with a better priority first among those that wait", async (flavour, expected) => {
  const time = createVirtualTime();
  const clocks = { clock: time.clock, scheduler: time.scheduler };
  const sim = await startSim({ ...clocks, speed: 1, parameters: { flavour, maxRunning: 1 } });
  const finished: string[] = [];
  const ask = async (name: string, priority: number): Promise<void> => {
    await sim.post(path, { messages: [{ role: "user", content: name }], max_tokens: 3, priority });
    finished.push(name);
  };
  const asked: Promise<void>[] = [];
  for (const [name, priority] of [
    ["first", 0],
    ["five", 5],
    ["one", 1],
  ] as const) {
    asked.push(ask(name, priority));
    await waitFor(async () => (await sim.state()).active.length === asked.length, { what: `${name} in the engine` });
  }
  for (const count of [1, 2, 3]) {
    time.advance(150);
    await waitFor(() => finished.length === count, { what: `${count} answers` });
  }
  await Promise.all(asked);
  expect(finished).toEqual(expected);
});
