import { createSeededRandom } from "@espalier/core";
import type { EventDialect } from "@espalier/engine-model/kv-events";
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { cacheCounts, cacheRouter, createMovableClock, publishingSims, untilHeard } from "./cache-rig.ts";
import { ask, converse, type Form, forms, type Turn, tokensOf, wordsOf } from "./cached-turns.ts";
import { post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const dialects: readonly EventDialect[] = ["vllm-0.23", "vllm-0.32", "sglang-0.5.23"];

/** Block sizes of engines, and of the index, in which every hit of the engine can be said in blocks of the index. */
const exactSizes: readonly (readonly [engine: number, index: number])[] = [
  [16, 16],
  [32, 16],
  [64, 16],
  [16, 8],
  [16, 1],
];

async function exchange(
  dialect: EventDialect,
  form: Form,
  [engineBlock, indexBlock]: readonly [engine: number, index: number],
): Promise<readonly Turn[]> {
  const sims = await publishingSims(rig, 1, { dialect, parameters: { blockSize: engineBlock } });
  const kvEvents = dialect === "vllm-0.23" ? { "kv-events": await sourceOf(sims[0]!.url) } : {};
  const router = await cacheRouter(rig, [{ url: sims[0]!.url, ...kvEvents }], {
    config: { prefix: { "block-size": indexBlock } },
  });
  const turns: Turn[] = [];
  const conversation = converse(router, form, { seed: engineBlock }, sims[0]!);
  for (let round = 0; round < 5; round++) {
    turns.push(await conversation.turn());
    await untilHeard(router, sims);
  }
  return turns;
}

/** This version does not say where its events are. */
async function sourceOf(url: string) {
  const { port, replayPort } = (await (await fetch(`${url}/sim/kv-events`)).json()) as {
    port: number;
    replayPort: number;
  };
  return { endpoint: `tcp://127.0.0.1:${port}`, replay: `tcp://127.0.0.1:${replayPort}` };
}

describe("turn by turn what is predicted is what the engine reports", () => {
  test.each(dialects.flatMap((dialect) => forms.map((form) => [dialect, form] as const)))(
    "%s, prompts of %s",
    async (dialect, form) => {
      const turns = await exchange(dialect, form, [16, 16]);
      expect(turns.map(({ predicted }) => predicted)).toEqual(turns.map(({ cached }) => cached));
      for (const turn of turns.slice(1)) expect(turn.cached).toBeGreaterThan(0.6 * turn.promptTokens);
    },
  );

  test.each(exactSizes)("blocks of %i tokens, of %i in the index", async (...sizes) => {
    for (const dialect of ["vllm-0.32", "sglang-0.5.23"] as const) {
      const turns = await exchange(dialect, "chat", sizes);
      expect(turns.map(({ predicted }) => predicted)).toEqual(turns.map(({ cached }) => cached));
      for (const turn of turns.slice(1)) expect(turn.cached).toBeGreaterThan(0.5 * turn.promptTokens);
    }
  });
});

test.each([16, 1])("SGLang's pages of one token, with %i in a block of the index", async (indexBlock) => {
  const turns = await exchange("sglang-0.5.23", "chat", [1, indexBlock]);
  expect(turns.map(({ predicted }) => predicted)).toEqual(
    turns.map(({ cached }) => Math.floor(cached / indexBlock) * indexBlock),
  );
  for (const turn of turns.slice(1)) expect(turn.cached).toBeGreaterThan(0.6 * turn.promptTokens);
});

test("block sizes that do not fit are told, and requests are served", async () => {
  const sims = await publishingSims(rig, 1, { parameters: { blockSize: 24 } });
  const router = await cacheRouter(rig, sims);
  const prompt = tokensOf(1, 200);
  for (const cached of [0, 192]) {
    const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    expect(turn).toMatchObject({ status: 200, cached });
    expect(turn.predicted).toBeLessThanOrEqual(cached);
    await untilHeard(router, sims);
  }
  const { feeds } = (await router.admin("GET", "/admin/feeds")).json;
  expect(feeds).toMatchObject([{ state: "live", unusable: "block-size-ratio", blocks: { gpu: 0 } }]);
});

describe.each(["vllm-0.32", "sglang-0.5.23"] as const)("%s", (dialect) => {
  test("with few blocks, what is evicted is not counted on", async () => {
    const seed = 11;
    const random = createSeededRandom(seed);
    const sims = await publishingSims(rig, 1, { dialect, parameters: { blockCount: 60, maxBatchedTokens: 64 } });
    const clock = createMovableClock();
    // A clock that is put forward must not look like an event loop that is late: once between two scrapes, by less than this.
    const limits = { "max-event-loop-delay": "1m" };
    const router = await cacheRouter(rig, sims, { clock, config: { limits } });
    const scrapes = async () => (await router.metrics()).sum("espalier_engine_metrics_scrapes_total", {});
    const histories = Array.from({ length: 6 }, (_, at) => tokensOf(at, 60));
    let hits = 0;
    let losses = 0;
    for (let round = 0; round < 60; round++) {
      const scraped = await scrapes();
      const at = random.integer(6);
      const prompt = [...histories[at]!, ...tokensOf(100 + round, random.integer(50))];
      const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 + random.integer(30) });
      expect(turn.predicted, `seed ${seed}, round ${round}`).toBe(turn.cached);
      if (turn.cached > 0) hits++;
      else if (round > 12) losses++;
      histories[at] = prompt.length < 400 ? prompt : tokensOf(at, 60);
      await untilHeard(router, sims);
      // What was sent is believed for some seconds beside what is told.
      clock.advance(10_001);
      await waitFor(async () => (await scrapes()) > scraped, { what: "another scrape" });
    }
    expect(Math.min(hits, losses)).toBeGreaterThan(5);
    expect(await cacheCounts(router)).toMatchObject({ over: 0, under: 0 });
  });

  test("a reset of the engine's prefix cache takes the credit away", async () => {
    const sims = await publishingSims(rig, 1, { dialect });
    const router = await cacheRouter(rig, sims);
    const prompt = tokensOf(1, 200);
    const turn = (tokens: readonly number[]) => ask(router, "/v1/completions", { prompt: tokens, max_tokens: 1 });
    await turn(prompt);
    await untilHeard(router, sims);
    expect((await turn(prompt)).predicted).toBe(192);
    await post(sims[0]!.url + (dialect === "vllm-0.32" ? "/reset_prefix_cache" : "/flush_cache"), "");
    // vLLM tells of it with its next step.
    await turn(tokensOf(2, 100));
    await untilHeard(router, sims);
    expect(await turn(prompt)).toMatchObject({ predicted: 0, cached: 0 });
    await untilHeard(router, sims);
    expect(await turn(prompt)).toMatchObject({ predicted: 192, cached: 192 });
  });
});

/** Prompts and what of them is cached when they come a second time. */
const edges: readonly (readonly [name: string, prompt: readonly number[] | string, cached: number])[] = [
  ["one token", tokensOf(1, 1), 0],
  ["one token less than a block", tokensOf(2, 15), 0],
  ["a block", tokensOf(3, 16), 0],
  ["a block and a token", tokensOf(4, 17), 16],
  ["two blocks, of which the last token is always computed", tokensOf(5, 32), 16],
  ["the same token over and over", Array.from({ length: 100 }, () => 777), 96],
];

test("short prompts and those that end with a block", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  for (const [name, prompt, cached] of edges) {
    await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    await untilHeard(router, sims);
    const again = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    expect([again.predicted, again.cached], name).toEqual([cached, cached]);
    await untilHeard(router, sims);
  }
});

test("the same tokens are found whichever API they come by", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  const messages = [
    { role: "system", content: wordsOf(1, 60) },
    { role: "user", content: wordsOf(2, 60) },
  ];
  const tokenized = await post(`${sims[0]!.url}/tokenize`, { messages });
  const prompt = tokenized.json.tokens as number[];
  const expected = Math.floor((prompt.length - 1) / 16) * 16;
  await ask(router, "/v1/chat/completions", { messages, max_tokens: 1 });
  await untilHeard(router, sims);
  const parts = messages.map(({ role, content }) => ({ role, content: [{ type: "text", text: content }] }));
  for (const [path, body] of [
    ["/v1/chat/completions", { messages, max_tokens: 1 }],
    ["/v1/chat/completions", { messages: parts, max_tokens: 1 }],
    ["/v1/completions", { prompt, max_tokens: 1 }],
  ] as const) {
    const turn = await ask(router, path, body);
    expect([turn.promptTokens, turn.predicted, turn.cached]).toEqual([prompt.length, expected, expected]);
    await untilHeard(router, sims);
  }
});
