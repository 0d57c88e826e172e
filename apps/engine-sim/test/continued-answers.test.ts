/** A request that brings the beginning of its own answer gets the rest of it: what a router needs to resume a stream. */
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { at, chunksOf, type Json, openRequest, parseEvents, startSim } from "./sim-client.ts";

const [chats, completions] = ["/v1/chat/completions", "/v1/completions"];
const question = { role: "user", content: "How do engines go on?" };

const said = (answer: Json): string => String(at(answer, "choices", 0, "message", "content"));
const written = (answer: Json): string => String(at(answer, "choices", 0, "text"));

test.each(["vllm", "sglang"] as const)("%s: a chat goes on at any character of its answer", async (flavour) => {
  const sim = await startSim({ parameters: { flavour } });
  const whole = said((await sim.post(chats, { messages: [question], max_tokens: 20, seed: 7 })).json);
  for (const tokens of [0, 1, 2, 11, 19]) {
    const beginning = whole.slice(0, 4 * tokens);
    for (const content of new Set([beginning, beginning.trimEnd()])) {
      const messages = [question, { role: "assistant", content }];
      const mended = content.length < beginning.length ? 1 : 0;
      const request = { messages, max_tokens: 20 - tokens + mended, seed: 7 };
      const flags = { continue_final_message: true, add_generation_prompt: false };
      const { json } = await sim.post(chats, { ...request, ...flags });
      expect(content + said(json)).toBe(whole);
    }
  }
});

test("a chat cannot be continued and begin an answer", async () => {
  const sim = await startSim();
  const messages = [question, { role: "assistant", content: "So " }];
  expect((await sim.post(chats, { messages, continue_final_message: true })).status).toBe(400);
});

test("what the model would not have said is a prompt like any other", async () => {
  const sim = await startSim();
  const messages = [question, { role: "assistant", content: "Never said" }];
  const flags = { continue_final_message: true, add_generation_prompt: false };
  const { json } = await sim.post(chats, { messages, max_tokens: 3, ...flags });
  expect(at(json, "usage", "completion_tokens")).toBe(3);
});

test("completions go on after their text and after their token ids", async () => {
  const sim = await startSim();
  const prompt = "Once upon a time";
  const { json } = await sim.post(completions, { prompt, max_tokens: 20, return_token_ids: true });
  const whole = written(json);
  const ids = at(json, "choices", 0, "token_ids") as number[];
  expect(ids).toHaveLength(20);
  for (const tokens of [1, 7, 19]) {
    const rest = { max_tokens: 20 - tokens };
    const byText = await sim.post(completions, { prompt: prompt + whole.slice(0, 4 * tokens), ...rest });
    expect(written(byText.json)).toBe(whole.slice(4 * tokens));
    const bytes = [0x4f6e6365, 0x2075706f, 1];
    const first = await sim.post(completions, { prompt: bytes, max_tokens: 20, return_token_ids: true });
    const given = at(first.json, "choices", 0, "token_ids") as number[];
    const byIds = await sim.post(completions, { prompt: [...bytes, ...given.slice(0, tokens)], ...rest });
    expect(written(byIds.json)).toBe(written(first.json).slice(4 * tokens));
  }
});

test("the natural length counts from the beginning of the answer", async () => {
  const sim = await startSim({ naturalLengthMean: 12 });
  for (const seed of fixedSeeds(5)) {
    const prompt = `Tell ${String(seed).padStart(11)}`;
    const whole = written((await sim.post(completions, { prompt, max_tokens: 500 })).json);
    const given = whole.slice(0, 4);
    if (given === whole) continue;
    expect(given + written((await sim.post(completions, { prompt: prompt + given, max_tokens: 500 })).json)).toBe(
      whole,
    );
  }
});

test("streams have the ids of the prompt once, and of each token", async () => {
  const sim = await startSim();
  const request = { stream: true, max_tokens: 3, return_token_ids: true };
  const texts = chunksOf(await sim.events(completions, { prompt: [1, 2], ...request }));
  expect(texts.map((chunk) => at(chunk, "choices", 0, "prompt_token_ids"))).toEqual([[1, 2], null, null]);
  expect(texts.map((chunk) => (at(chunk, "choices", 0, "token_ids") as number[]).length)).toEqual([1, 1, 1]);
  const turns = chunksOf(await sim.events(chats, { messages: [question], ...request }));
  expect(turns.map((chunk) => Array.isArray(chunk.prompt_token_ids))).toEqual([true, false, false, false]);
  const sglang = await startSim({ parameters: { flavour: "sglang" } });
  expect((await sglang.post(chats, { messages: [question], ...request })).status).toBe(400);
});

test("a fault hits each request at a token of its own", async () => {
  const sim = await startSim();
  await sim.post("/sim/faults", { kind: "cut-mid-stream", withinTokens: 50 });
  const lengths = new Set<number>();
  for (let sent = 0; sent < 5; sent++) {
    const { text } = await openRequest(sim.url + completions, { prompt: "x", stream: true, max_tokens: 60 }).ended;
    lengths.add(parseEvents(text).length);
  }
  expect(lengths.size).toBeGreaterThan(2);
});
