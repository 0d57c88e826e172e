import { expect, test } from "vitest";
import { at, capturedRequest, captureFolder, chunksOf, type Json, startSim } from "./sim-client.ts";

const path = "/generate";
const sampling = (tokens: number): Json => ({ sampling_params: { max_new_tokens: tokens, temperature: 0 } });

const folder = captureFolder("sglang-0.5.23");

test.skipIf(folder === undefined)("an answer has fields that SGLang sent, with the same meaning", async () => {
  const captured = await capturedRequest(folder as string, "a3.ids3");
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  const answer = (await sim.post(path, captured.request)).json;
  const real = captured.response as Json;
  expect(Object.keys(answer).sort()).toEqual(Object.keys(real).sort());
  for (const key of Object.keys(answer.meta_info as Json)) expect(real.meta_info).toHaveProperty(key);
  for (const key of ["prompt_tokens", "completion_tokens", "cached_tokens", "finish_reason"]) {
    expect(at(answer, "meta_info", key), key).toEqual(at(real, "meta_info", key));
  }
  expect(answer.output_ids).toHaveLength((real.output_ids as unknown[]).length);
});

test("the generated ids are the tokens of the generated text", async () => {
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  const answer = (await sim.post(path, { text: "hello", ...sampling(9) })).json;
  expect((await sim.post("/tokenize", { prompt: answer.text })).json.tokens).toEqual(answer.output_ids);
});

test("each event of a stream repeats what came before, the last one tells how it ended", async () => {
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  const whole = (await sim.post(path, { text: "hello", ...sampling(4) })).json;
  const events = await sim.events(path, { text: "hello", stream: true, ...sampling(4) });
  expect(events.at(-1)?.data).toBe("[DONE]");
  const chunks = chunksOf(events);
  expect(chunks).toHaveLength(4);
  for (const [index, chunk] of chunks.entries()) {
    expect(chunk.text).toBe((whole.text as string).slice(0, 4 * (index + 1)));
    expect(chunk.output_ids).toEqual((whole.output_ids as number[]).slice(0, index + 1));
    expect(at(chunk, "meta_info", "completion_tokens")).toBe(index + 1);
  }
  expect(chunks.map((chunk) => at(chunk, "meta_info", "finish_reason"))).toEqual([
    null,
    null,
    null,
    { type: "length", length: 4 },
  ]);
  expect("index" in (chunks[0] as Json)).toBe(false);
});

test("lists give lists, and indexes in a stream", async () => {
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  for (const prompts of [{ text: ["a", "b"] }, { input_ids: [[1], [2]] }]) {
    const answers = (await sim.post(path, { ...prompts, ...sampling(3) })).json as unknown as Json[];
    expect(answers.map((answer) => (answer.output_ids as unknown[]).length)).toEqual([3, 3]);
    const chunks = chunksOf(await sim.events(path, { ...prompts, stream: true, ...sampling(3) }));
    for (const index of [0, 1]) {
      const last = chunks.filter((chunk) => chunk.index === index).at(-1);
      expect(last?.text).toBe(answers[index]?.text);
    }
  }
  expect((await sim.post(path, { text: ["a"], ...sampling(1) })).json).toHaveLength(1);
});

test("an answer that ends by itself says stop", async () => {
  const sim = await startSim({ naturalLengthMean: 3, parameters: { flavour: "sglang" } });
  const answer = (await sim.post(path, { text: "hello", ...sampling(4_000) })).json;
  expect(at(answer, "meta_info", "finish_reason")).toMatchObject({ type: "stop" });
  const forced = { text: "hello", sampling_params: { max_new_tokens: 40, ignore_eos: true } };
  expect(at((await sim.post(path, forced)).json, "meta_info", "finish_reason", "type")).toBe("length");
});

test.each([
  [{}, "text"],
  [{ text: 5 }, "text"],
  [{ text: [] }, "text"],
  [{ text: Array(257).fill("a") }, "text"],
  [{ input_ids: [] }, "input_ids"],
  [{ input_ids: [[1], "x"] }, "input_ids"],
  [{ text: "a", sampling_params: 3 }, "sampling_params"],
  [{ text: "a", sampling_params: { max_new_tokens: 0 } }, "max_new_tokens"],
])("refuses %j in SGLang's form", async (body, param) => {
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(400);
  expect(answer.json).toMatchObject({ object: "error", type: "BadRequestError", param, code: 400 });
});
