import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { at, chunksOf, type Json, startSim, type TestSim } from "./sim-client.ts";

interface Turn {
  readonly question: string;
  readonly answerTokens: number;
}

const turns = fc.array(
  fc.record({
    question: fc.string({ unit: "binary", minLength: 1, maxLength: 300 }),
    answerTokens: fc.integer({ min: 1, max: 80 }),
  }),
  { minLength: 1, maxLength: 5 },
);

interface TurnResult {
  readonly answer: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** One API by which a conversation can be led, always with the whole conversation in the request. */
type Ask = (sim: TestSim, messages: readonly Json[], maxTokens: number) => Promise<TurnResult>;

const apis: Readonly<Record<string, Ask>> = {
  async chat(sim, messages, max_tokens) {
    const body = (await sim.post("/v1/chat/completions", { messages, max_tokens })).json;
    return {
      answer: at(body, "choices", 0, "message", "content") as string,
      promptTokens: at(body, "usage", "prompt_tokens") as number,
      cachedTokens: at(body, "usage", "prompt_tokens_details", "cached_tokens") as number,
    };
  },
  async "streamed chat"(sim, messages, max_tokens) {
    const options = { stream: true, stream_options: { include_usage: true } };
    const chunks = chunksOf(await sim.events("/v1/chat/completions", { messages, max_tokens, ...options }));
    const usage = chunks.at(-1)?.usage;
    return {
      answer: chunks.map((chunk) => at(chunk, "choices", 0, "delta", "content") ?? "").join(""),
      promptTokens: at(usage, "prompt_tokens") as number,
      cachedTokens: at(usage, "prompt_tokens_details", "cached_tokens") as number,
    };
  },
  async messages(sim, messages, max_tokens) {
    const body = (await sim.post("/v1/messages", { messages, max_tokens })).json;
    const cachedTokens = at(body, "usage", "cache_read_input_tokens") as number;
    return {
      answer: at(body, "content", 0, "text") as string,
      promptTokens: (at(body, "usage", "input_tokens") as number) + cachedTokens,
      cachedTokens,
    };
  },
  async responses(sim, messages, max_output_tokens) {
    const body = (await sim.post("/v1/responses", { input: messages, max_output_tokens })).json;
    return {
      answer: at(body, "output", 0, "content", 0, "text") as string,
      promptTokens: at(body, "usage", "input_tokens") as number,
      cachedTokens: at(body, "usage", "input_tokens_details", "cached_tokens") as number,
    };
  },
};

/** Leads a conversation and checks at each turn what the cache must have held. */
async function lead(sim: TestSim, ask: Ask, conversation: readonly Turn[], blockSize: number): Promise<string[]> {
  const messages: Json[] = [];
  const answers: string[] = [];
  let computed = 0;
  for (const { question, answerTokens } of conversation) {
    messages.push({ role: "user", content: question });
    const { answer, promptTokens, cachedTokens } = await ask(sim, messages, answerTokens);
    const reusable = Math.min(computed, promptTokens - 1);
    expect(cachedTokens).toBe(reusable - (reusable % blockSize));
    computed = promptTokens + answerTokens - 1;
    expect(Buffer.byteLength(answer)).toBe(answerTokens * 4);
    messages.push({ role: "assistant", content: answer });
    answers.push(answer);
  }
  return answers;
}

for (const [name, ask] of Object.entries(apis)) {
  test.each(["vllm", "sglang"] as const)(
    `by ${name}, each turn finds all full blocks of the turns before: %s`,
    async (flavour) => {
      const sim = await startSim({ parameters: { flavour, blockSize: 16, blockCount: 5_000 } });
      await fc.assert(
        fc.asyncProperty(turns, async (conversation) => {
          const path = flavour === "vllm" ? "/reset_prefix_cache" : "/flush_cache";
          expect((await sim.post(path, "")).status).toBe(200);
          await lead(sim, ask, conversation, 16);
        }),
        { numRuns: randomRuns(12) },
      );
    },
    30_000,
  );
}

test("every API gives the same answers to the same conversation", async () => {
  const conversation = [
    { question: "what is kept behind the archive door?", answerTokens: 20 },
    { question: "and who may see it?", answerTokens: 31 },
    { question: "thank you", answerTokens: 3 },
  ];
  const answers = [];
  for (const ask of Object.values(apis)) answers.push(await lead(await startSim(), ask, conversation, 16));
  expect(answers).toHaveLength(4);
  for (const other of answers) expect(other).toEqual(answers[0]);
});

test("an edit in the middle of a conversation keeps the blocks before it", async () => {
  const sim = await startSim({ parameters: { blockSize: 16 } });
  const ask = apis.chat as Ask;
  const messages = Array.from({ length: 6 }, (_, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content: "the tidal ledger ".repeat(8 + index),
  }));
  await ask(sim, messages, 1);
  const edited = messages.map((message, index) => (index === 3 ? { ...message, content: "no" } : message));
  const before = await sim.post("/tokenize", { messages: messages.slice(0, 3), add_generation_prompt: false });
  // The role of the edited message is still the same, its text is not.
  const shared = (before.json.count as number) + 1;
  expect((await ask(sim, edited, 1)).cachedTokens).toBe(shared - (shared % 16));
});
