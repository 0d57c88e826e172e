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
} from "./sim-client.ts";

const path = "/v1/completions";

const textsOf = (body: Json): string[] => (body.choices as Json[]).map(({ text }) => text as string);

for (const [flavour, capture] of [
  ["vllm", "vllm-0.32.0"],
  ["sglang", "sglang-0.5.23"],
] as const) {
  const folder = captureFolder(capture);

  test.skipIf(folder === undefined)(`a whole answer has the shape that ${capture} sent`, async () => {
    const captured = await capturedRequest(folder as string, "b2.exact-multiple");
    const sim = await startSim({ parameters: { flavour } });
    const answer = await sim.post(path, { prompt: captured.request.prompt, max_tokens: 1 });
    expect(shapeOf(answer.json)).toEqual(shapeOf(captured.response));
    expect(answer.json.object).toBe(captured.response?.object);
    expect(at(answer.json, "usage", "prompt_tokens")).toBe(at(captured.response, "usage", "prompt_tokens"));
  });

  test.skipIf(folder === undefined)(`the chunks of a stream have the shape that ${capture} sent`, async () => {
    const captured = await capturedRequest(folder as string, "b4.abort");
    const [first = ""] = (captured.sse ?? "").split("\n\n");
    const real = chunksOf(parseEvents(`${first}\n\n`));
    const sim = await startSim({ parameters: { flavour } });
    const ours = chunksOf(await sim.events(path, { prompt: "x", stream: true, max_tokens: 3 }));
    expect(shapeOf(ours[0])).toEqual(shapeOf(real[0]));
    expect(ours[0]?.object).toBe(real[0]?.object);
  });
}

test.each([
  ["a text", "the cat ", [2]],
  ["texts", ["the cat ", "the "], [2, 1]],
  ["token ids", [1, 2, 3_000_000_000], [3]],
  [
    "lists of token ids",
    [
      [1, 2],
      [3, 4, 5],
    ],
    [2, 3],
  ],
])("the prompt may be %s", async (_what, prompt, promptTokens) => {
  const sim = await startSim();
  const answer = (await sim.post(path, { prompt, max_tokens: 4 })).json;
  expect(textsOf(answer)).toHaveLength(promptTokens.length);
  expect(answer.usage).toMatchObject({
    prompt_tokens: promptTokens.reduce((sum, tokens) => sum + tokens),
    completion_tokens: promptTokens.length * 4,
  });
});

test("n answers to each of several prompts come in order of the prompts", async () => {
  const sim = await startSim();
  const one = (await sim.post(path, { prompt: "the cat ", max_tokens: 5 })).json;
  const two = (await sim.post(path, { prompt: "the dog ", max_tokens: 5 })).json;
  const both = (await sim.post(path, { prompt: ["the cat ", "the dog "], n: 2, max_tokens: 5 })).json;
  expect((both.choices as Json[]).map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect([textsOf(both)[0], textsOf(both)[2]]).toEqual([textsOf(one)[0], textsOf(two)[0]]);
  expect(new Set(textsOf(both)).size).toBe(4);
  expect(both.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 20, total_tokens: 24 });
});

test("a streamed answer to several prompts carries the index of each", async () => {
  const sim = await startSim();
  const body = { prompt: ["the cat ", "the dog "], max_tokens: 3 };
  const whole = (await sim.post(path, body)).json;
  const chunks = chunksOf(await sim.events(path, { ...body, stream: true }));
  for (const index of [0, 1]) {
    const own = chunks.filter((chunk) => at(chunk, "choices", 0, "index") === index);
    expect(own.map((chunk) => at(chunk, "choices", 0, "text")).join("")).toBe(textsOf(whole)[index]);
    expect(own.map((chunk) => at(chunk, "choices", 0, "finish_reason"))).toEqual([null, null, "length"]);
  }
});

test("the ids and the text of one prompt are the same prompt to the cache", async () => {
  const sim = await startSim();
  const prompt = "every faded label near the east stairs ".repeat(6);
  const { tokens } = (await sim.post("/tokenize", { prompt })).json;
  const cached = async (form: unknown) => {
    const answer = await sim.post(path, { prompt: form, max_tokens: 1 });
    return at(answer.json, "usage", "prompt_tokens_details", "cached_tokens");
  };
  expect(await cached(prompt)).toBe(0);
  // 58 tokens and a rest of bytes: three full blocks of 16.
  expect(await cached(tokens)).toBe(48);
});

test("cached tokens of several prompts add up, each prompt once", async () => {
  const sim = await startSim();
  const prompts = ["a".repeat(4 * 40), "b".repeat(4 * 40)];
  await sim.post(path, { prompt: prompts, max_tokens: 1 });
  const again = (await sim.post(path, { prompt: prompts, max_tokens: 1, n: 2 })).json;
  expect(again.usage).toMatchObject({ prompt_tokens: 80, prompt_tokens_details: { cached_tokens: 64 } });
});

test.each([
  [{}, "prompt"],
  [{ prompt: 7 }, "prompt"],
  [{ prompt: [] }, "prompt"],
  [{ prompt: "" }, "prompt"],
  [{ prompt: [1, "a"] }, "prompt"],
  [{ prompt: [1.5] }, "prompt"],
  [{ prompt: [[1], []] }, "prompt"],
  [{ prompt: Array(257).fill("a") }, "prompt"],
  [{ prompt: "a", n: 0 }, "n"],
  [{ prompt: "a", n: 129 }, "n"],
  [{ prompt: "a", seed: "x" }, "seed"],
  [{ prompt: "a", max_tokens: 2.5 }, "max_tokens"],
  [{ prompt: "a", stream: "maybe" }, "stream"],
  [{ prompt: "a", stream_options: 1 }, "stream_options"],
  [{ prompt: "a", cache_salt: 1 }, "cache_salt"],
  [{ prompt: "a", priority: "high" }, "priority"],
  [{ prompt: "a", ignore_eos: 2 }, "ignore_eos"],
  [{ prompt: "a", model: 5 }, "model"],
])("refuses %j", async (body, param) => {
  const sim = await startSim();
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param, code: 400, type: "BadRequestError" });
  expect((await sim.state()).active).toEqual([]);
});

test("256 prompts and 128 answers to one are taken", async () => {
  const sim = await startSim();
  const prompts = (await sim.post(path, { prompt: Array(256).fill("a"), max_tokens: 1 })).json;
  expect(prompts.choices).toHaveLength(256);
  expect((await sim.post(path, { prompt: "a", n: 128, max_tokens: 1 })).json.choices).toHaveLength(128);
});
