import { expect, test } from "vitest";
import { createHarness, GENERATED, upFrom } from "./harness.ts";

/**
 * Blocks of 4 tokens, 16 tokens a step; a step takes 1 ms + 0.01 ms per prompt token + 0.1 ms per decoding sequence.
 *
 * A: prompt 1..18 (18 tokens), 3 tokens out, at 0 ms. B: prompt 1..8 and 101..106 (14 tokens), 2 out, at 0.5 ms.
 *
 * Step 1 (0 ms): A prefills 16 tokens, the whole budget. 1 + 0.16 = 1.16 ms. Blocks: 4, all full, all entered.
 * Step 2 (1.16 ms): A prefills its last 2 tokens (block 5). B is admitted: 1..8 are two full blocks of A, so 8 tokens
 *   are cached and 6 are left to compute (blocks 3 and 4 of B; block 3 is full: 101..104 behind 1..8).
 *   1 + 0.08 = 1.08 ms, ends at 2.24 ms: first tokens of A and B.
 * Step 3 (2.24 ms): both decode. A computes token 19, B token 15. 1 + 0.2 = 1.2 ms, ends at 3.44 ms. B has its 2 tokens.
 * Step 4 (3.44 ms): A decodes token 20, which fills its 5th block (17, 18, and two generated ones). 1.1 ms, 4.54 ms.
 */
test("two requests, step by step", () => {
  const harness = createHarness();
  const { engine } = harness;
  harness.submit("A", upFrom(1, 18), 3);
  engine.advanceTo(0);
  expect(engine.nextEventMs()).toBeCloseTo(1.16, 9);
  expect(engine.stats()).toMatchObject({ running: 1, waiting: 0, freeBlocks: 12, kvUse: 4 / 16, cachedBlocks: 4 });

  const outputToken = (index: number): number => GENERATED + index;
  const prompt = Uint32Array.from([...upFrom(1, 8), ...upFrom(101, 6)]);
  engine.submit({ id: "B", promptTokens: prompt, outputTokens: 2, outputToken }, 0.5);
  expect(engine.stats()).toMatchObject({ running: 1, waiting: 1 });

  engine.advanceTo(1.16);
  expect(engine.nextEventMs()).toBeCloseTo(2.24, 9);
  // A holds 5 blocks, B holds 4 of which 2 are A's: 7 of 16. Entered: 4 of A, 1 of B.
  expect(engine.stats()).toMatchObject({ running: 2, waiting: 0, freeBlocks: 9, cachedBlocks: 5, generatedTokens: 0 });

  engine.advanceTo(2.25);
  expect(engine.nextEventMs()).toBeCloseTo(3.44, 9);
  expect(engine.stats()).toMatchObject({ running: 2, generatedTokens: 2, promptTokens: 32 });

  engine.advanceTo(3.45);
  // B is gone: its own two blocks are free, one with content.
  expect(engine.stats()).toMatchObject({ running: 1, freeBlocks: 11, finished: 1, cachedBlocks: 6 });
  expect(engine.nextEventMs()).toBeCloseTo(4.54, 9);

  engine.advanceTo(10);
  expect(engine.nextEventMs()).toBeUndefined();
  expect(engine.stats()).toEqual({
    running: 0,
    waiting: 0,
    importing: 0,
    pulling: 0,
    pulledTokens: 0,
    pulls: 0,
    emptyPulls: 0,
    pinned: 0,
    kvUse: 0,
    cachedBlocks: 6,
    freeBlocks: 16,
    steps: 4,
    busyMs: expect.closeTo(4.54, 9),
    promptTokens: 32,
    generatedTokens: 5,
    prefixQueries: 32,
    prefixHits: 8,
    importedTokens: 0,
    loadedTokens: 0,
    cpuBlocks: 0,
    adapterLoads: 0,
    preemptions: 0,
    finished: 2,
  });
  expect(harness.report("A")).toEqual({
    id: "A",
    promptTokens: 18,
    cachedTokens: 0,
    importedTokens: 0,
    pulledTokens: 0,
    outputTokens: 3,
    arrivedMs: 0,
    scheduledMs: 0,
    firstTokenMs: expect.closeTo(2.24, 9),
    finishedMs: expect.closeTo(4.54, 9),
    preemptions: 0,
    finishReason: "length",
  });
  expect(harness.report("B")).toMatchObject({
    cachedTokens: 8,
    arrivedMs: 0.5,
    scheduledMs: expect.closeTo(1.16, 9),
    firstTokenMs: expect.closeTo(2.24, 9),
    finishedMs: expect.closeTo(3.44, 9),
  });
  expect(harness.tokens.map(({ id, index, token }) => [id, index, token])).toEqual([
    ["A", 0, GENERATED],
    ["B", 0, GENERATED],
    ["A", 1, GENERATED + 1],
    ["B", 1, GENERATED + 1],
    ["A", 2, GENERATED + 2],
  ]);
});

test("the same two requests in events: one batch per step that had any", () => {
  const harness = createHarness();
  harness.submit("A", upFrom(1, 18), 3);
  harness.engine.advanceTo(0);
  harness.submit("B", [...upFrom(1, 8), ...upFrom(101, 6)], 2);
  harness.settle();

  expect(harness.batches.map(({ timeMs }) => timeMs)).toEqual([1.16, 2.24, 4.54].map((ms) => expect.closeTo(ms, 9)));
  const [first, second, third] = harness.batches.map(({ events }) => events);
  expect(first).toEqual([
    {
      type: "stored",
      hashes: [expect.any(BigInt), expect.any(BigInt), expect.any(BigInt), expect.any(BigInt)],
      parentHash: undefined,
      tokens: Uint32Array.from(upFrom(1, 16)),
      blockSize: 4,
      adapter: undefined,
      cacheSalt: undefined,
    },
  ]);
  const stored = first![0]!.type === "stored" ? first![0]!.hashes : [];
  // B's third block hangs below the second of A.
  expect(second).toMatchObject([{ type: "stored", parentHash: stored[1], tokens: Uint32Array.from(upFrom(101, 4)) }]);
  // The block with generated tokens hangs below the fourth of A.
  expect(third).toMatchObject([
    { type: "stored", parentHash: stored[3], tokens: Uint32Array.from([17, 18, GENERATED, GENERATED + 1]) },
  ]);
});

/**
 * SGLang, pages of 4, 16 tokens a step: a step either extends prompts or decodes.
 *
 * A: prompt 1..10, 3 out, at 0. Step 1: 10 tokens, 3 pages. 1.1 ms. Its 2 full pages enter the tree.
 * B: prompt 1..6, 2 out, in the middle of step 1. Step 2 (1.1 ms): page 1 is cached (4 tokens; one more than 5 tokens
 *   must be computed), 2 tokens are computed, A waits. 1.02 ms, ends at 2.12 ms. B has no new full page.
 * Step 3 (2.12 ms): A and B decode, 1.2 ms, ends at 3.32 ms. B ends with 7 tokens computed: one page, known already.
 * Step 4: A decodes, 1.1 ms, ends at 4.42 ms: 12 tokens computed, the third page enters the tree.
 */
test("two requests on SGLang, step by step", () => {
  const harness = createHarness({ flavour: "sglang" });
  harness.submit("A", upFrom(1, 10), 3);
  harness.engine.advanceTo(0);
  harness.submit("B", upFrom(1, 6), 2);
  harness.settle();

  expect(harness.report("A")).toMatchObject({
    firstTokenMs: expect.closeTo(1.1, 9),
    finishedMs: expect.closeTo(4.42, 9),
  });
  expect(harness.report("B")).toMatchObject({
    cachedTokens: 4,
    scheduledMs: expect.closeTo(1.1, 9),
    firstTokenMs: expect.closeTo(2.12, 9),
    finishedMs: expect.closeTo(3.32, 9),
  });
  expect(harness.events().map((event) => [event.type, event.type === "stored" ? [...event.tokens] : []])).toEqual([
    ["cleared", []],
    ["stored", upFrom(1, 8)],
    ["stored", [9, 10, GENERATED, GENERATED + 1]],
  ]);
  expect(harness.engine.stats()).toMatchObject({ steps: 4, cachedBlocks: 3, freeBlocks: 16, kvUse: 0 });
});
