import { describe, expect, test } from "vitest";
import { createHarness, type Harness, upFrom } from "./harness.ts";

/** Duration of the step that starts now, in ms. */
function stepMs(harness: Harness): number {
  harness.engine.advanceTo(harness.nowMs());
  return harness.engine.nextEventMs()! - harness.nowMs();
}

describe("the duration of a step", () => {
  // One prompt of 5 tokens: 5 tokens, 1 + 2 + 3 + 4 + 5 = 15 pairs. Its decode attends to 6 tokens.
  const cases = [
    ["base", {}, 7, 7],
    ["prompt tokens", { prefillMsPerToken: 2 }, 7 + 10, 7],
    ["attention", { attentionMsPerTokenPair: 0.5 }, 7 + 7.5, 7],
    ["decoding sequences", { decodeMsPerSequence: 3 }, 7, 7 + 3],
    ["context", { decodeMsPerContextToken: 0.25 }, 7, 7 + 1.5],
  ] as const;
  const zero = { prefillMsPerToken: 0, decodeMsPerSequence: 0 };

  test.each(cases)("%s", (_, part, prefillMs, decodeMs) => {
    const harness = createHarness({ ...zero, stepBaseMs: 7, ...part });
    harness.submit("a", upFrom(1, 5), 2);
    harness.settle();
    expect(harness.tokens.map(({ timeMs }) => timeMs)).toEqual([prefillMs, prefillMs + decodeMs]);
  });

  test("a later chunk attends to the chunks before it", () => {
    const harness = createHarness({ ...zero, stepBaseMs: 1, attentionMsPerTokenPair: 1, maxBatchedTokens: 4 });
    harness.run("a", upFrom(1, 6));
    // 1 + 2 + 3 + 4 pairs, then 5 + 6.
    expect(harness.report("a").firstTokenMs).toBe(1 + 10 + (1 + 11));
  });

  test("cached tokens cost nothing themselves but are attended to", () => {
    const harness = createHarness({ ...zero, stepBaseMs: 1, attentionMsPerTokenPair: 1 });
    harness.run("a", upFrom(1, 8));
    harness.run("b", [...upFrom(1, 8), 50]);
    const { scheduledMs, firstTokenMs } = harness.report("b");
    expect(firstTokenMs - scheduledMs).toBe(1 + 9);
  });
});

describe("the token budget", () => {
  test("decodes come first, then chunks of prompts in order of admission, then new requests", () => {
    const harness = createHarness({ maxBatchedTokens: 8, decodeMsPerSequence: 0.1 });
    harness.submit("a", upFrom(100, 4), 9);
    expect(stepMs(harness)).toBeCloseTo(1.04, 9);
    harness.submit("b", upFrom(200, 12));
    harness.submit("c", upFrom(300, 6));
    harness.engine.advanceTo(1.04);
    // One token of `a`, seven of `b`; nothing is left for `c`.
    expect(harness.engine.nextEventMs()! - 1.04).toBeCloseTo(1 + 0.1 + 0.07, 9);
    expect(harness.engine.stats()).toMatchObject({ running: 2, waiting: 1 });
    harness.engine.advanceTo(2.21);
    // One of `a`, the last five of `b`, two of `c`.
    expect(harness.engine.nextEventMs()! - 2.21).toBeCloseTo(1 + 0.1 + 0.07, 9);
    harness.settle();
    expect(harness.report("b").firstTokenMs).toBeLessThan(harness.report("c").firstTokenMs);
  });

  test("a prompt of exactly the budget takes one step, one token more takes two", () => {
    for (const [length, steps] of [
      [8, 1],
      [9, 2],
      [16, 2],
      [17, 3],
    ] as const) {
      const harness = createHarness({ maxBatchedTokens: 8 });
      harness.run("a", upFrom(1, length));
      expect(harness.engine.stats().steps).toBe(steps);
    }
  });
});

test("never more sequences than places", () => {
  const harness = createHarness({ maxRunning: 2, maxBatchedTokens: 64 });
  for (const id of ["a", "b", "c"]) harness.submit(id, upFrom(id.charCodeAt(0) * 10, 3), 4);
  harness.engine.advanceTo(0);
  expect(harness.engine.stats()).toMatchObject({ running: 2, waiting: 1 });
  harness.settle();
  expect(harness.report("c").scheduledMs).toBe(harness.report("a").finishedMs);
});

test("requests handed in at one moment share a step, and its blocks", () => {
  for (const [flavour, cached] of [
    // vLLM enters the blocks of the first before it looks up the second; SGLang only when they are computed.
    ["vllm", 8],
    ["sglang", 0],
  ] as const) {
    const harness = createHarness({ flavour, maxBatchedTokens: 64, blockCount: 64 });
    for (const id of ["a", "b", "c"]) harness.submit(id, upFrom(1, 10), 2);
    harness.settle();
    expect(harness.reports.map(({ cachedTokens }) => cachedTokens)).toEqual([0, cached, cached]);
    expect(new Set(harness.reports.map(({ scheduledMs }) => scheduledMs))).toEqual(new Set([0]));
    // However many computed them, the tree or the pool holds the content once where it is shared.
    expect(harness.engine.stats().cachedBlocks).toBe(2);
  }
});

test("lower priority values go first, equal ones in order of arrival", () => {
  const harness = createHarness({ maxRunning: 1 });
  const ids = ["busy", "late", "early", "urgent", "late too", "early too"];
  const priorities = [0, 5, 1, -3, 5, 1];
  for (const [at, id] of ids.entries()) {
    harness.submit(id, upFrom(100 * at, 3), 2, { priority: priorities[at]! });
    harness.engine.advanceTo(0);
  }
  harness.settle();
  expect(harness.reports.map(({ id }) => id)).toEqual(["busy", "urgent", "early", "early too", "late", "late too"]);
});

test("a waiting request that does not fit holds up those behind it", () => {
  const harness = createHarness({ blockCount: 8, maxBatchedTokens: 64 });
  harness.submit("a", upFrom(100, 17), 3);
  harness.submit("big", upFrom(200, 16), 3);
  harness.submit("small", upFrom(300, 2), 1);
  harness.engine.advanceTo(0);
  // `a` holds 5 of 8 blocks, `big` needs 4, `small` would fit.
  expect(harness.engine.stats()).toMatchObject({ running: 1, waiting: 2, freeBlocks: 3 });
  harness.settle();
  expect(harness.report("big").scheduledMs).toBe(harness.report("a").finishedMs);
});

test("vLLM admits a prompt in chunks only when all of it fits", () => {
  const harness = createHarness({ blockCount: 8, maxBatchedTokens: 8 });
  harness.submit("a", upFrom(100, 8), 10);
  harness.engine.advanceTo(0);
  harness.submit("b", upFrom(200, 25));
  harness.settle();
  // 2 blocks of `a` (3 from its first decode on) leave 6: too few for the 7 of `b`, although its first chunk needs 2.
  expect(harness.report("b").scheduledMs).toBe(harness.report("a").finishedMs);
});

describe("preemption", () => {
  /** Two requests of 8 tokens and 10 to come: 5 blocks each at the end, 8 in all. */
  function preempting(priorities: readonly [number, number]): Harness {
    const harness = createHarness({ blockCount: 8, maxBatchedTokens: 64 });
    harness.submit("a", upFrom(100, 8), 10, { priority: priorities[0] });
    harness.submit("b", upFrom(200, 8), 10, { priority: priorities[1] });
    harness.settle();
    return harness;
  }

  test("the one admitted last gives way, starts over, and finds its blocks again", () => {
    const harness = preempting([0, 0]);
    expect(harness.report("a")).toMatchObject({ preemptions: 0, outputTokens: 10 });
    expect(harness.report("b")).toMatchObject({ preemptions: 1, outputTokens: 10, cachedTokens: 0, scheduledMs: 0 });
    expect(harness.report("a").finishedMs).toBeLessThan(harness.report("b").finishedMs);
    expect(harness.engine.stats()).toMatchObject({ preemptions: 1, freeBlocks: 8, finished: 2 });
    // Every token is told once, in order.
    const ofB = harness.tokens.filter(({ id }) => id === "b").map(({ index }) => index);
    expect(ofB).toEqual(upFrom(0, 10));
  });

  test("the one with the highest priority value gives way, wherever it stands", () => {
    const harness = preempting([1, 0]);
    // `b` goes first by its priority, so `a` is admitted last and gives way.
    expect(harness.report("a").preemptions).toBe(1);
    expect(harness.report("b").preemptions).toBe(0);
  });

  test("a victim that was planned for the step already loses its place in it", () => {
    const harness = createHarness({ blockCount: 8, maxBatchedTokens: 64 });
    harness.submit("idle", upFrom(100, 8), 10, { priority: 9 });
    harness.engine.advanceTo(0);
    harness.submit("urgent", upFrom(200, 8), 10, { priority: 0 });
    harness.settle();
    // `idle` stands first in the batch, takes its token, and loses it to `urgent` behind it.
    expect(harness.report("idle").preemptions).toBe(1);
    expect(harness.report("urgent").preemptions).toBe(0);
    expect(harness.tokens.filter(({ id }) => id === "idle").map(({ index }) => index)).toEqual(upFrom(0, 10));
  });

  test("a preempted request goes before those that wait", () => {
    const harness = createHarness({ blockCount: 8, maxBatchedTokens: 64 });
    harness.submit("a", upFrom(100, 8), 10);
    harness.submit("b", upFrom(200, 8), 10);
    harness.engine.advanceTo(0);
    harness.submit("waiting", upFrom(300, 20), 1);
    harness.settle();
    expect(harness.report("b").preemptions).toBe(1);
    expect(harness.report("waiting").scheduledMs).toBeGreaterThanOrEqual(harness.report("b").finishedMs);
  });
});

test("SGLang keeps room for what the running ones will still generate", () => {
  const admittedAtOnce = (outputTokens: number): number => {
    const harness = createHarness({ flavour: "sglang", blockCount: 16, maxBatchedTokens: 64 });
    for (const id of ["a", "b", "c"]) harness.submit(id, upFrom(id.charCodeAt(0) * 10, 8), outputTokens);
    harness.engine.advanceTo(0);
    const { running } = harness.engine.stats();
    harness.settle();
    expect(harness.engine.stats()).toMatchObject({ finished: 3, freeBlocks: 16 });
    return running;
  };
  expect(admittedAtOnce(2)).toBe(3);
  // 8 + 20 tokens each: two fill 14 of 16 pages, and each is counted with a page to spare.
  expect(admittedAtOnce(20)).toBe(2);
  expect(admittedAtOnce(40)).toBe(1);
});

test("SGLang takes a sequence back when it expected too little", () => {
  const harness = createHarness({ flavour: "sglang", blockCount: 64, maxBatchedTokens: 64, maxModelLength: 256 });
  harness.submit("a", upFrom(100, 4), 140);
  harness.engine.advanceTo(0);
  // `a` holds 4 tokens and is counted with 0.7 x 139 more; `b` with 4 + 140 and a page: 61.6 of 62 free pages.
  harness.submit("b", upFrom(200, 4), 140);
  harness.engine.advanceTo(1.05);
  harness.engine.advanceTo(3);
  expect(harness.engine.stats()).toMatchObject({ running: 2, waiting: 0 });
  // Together they want 71 pages.
  harness.settle();
  expect(harness.report("a")).toMatchObject({ preemptions: 0, outputTokens: 140 });
  expect(harness.report("b")).toMatchObject({ preemptions: 1, outputTokens: 140 });
  expect(harness.engine.stats()).toMatchObject({ finished: 2, freeBlocks: 64, kvUse: 0, preemptions: 1 });
  expect(harness.tokens.filter(({ id }) => id === "b").map(({ index }) => index)).toEqual(upFrom(0, 140));
});
