import { createSeededRandom, type Random } from "@espalier/core";
import {
  createBlockEngine,
  createEngine,
  type Engine,
  type EngineParameters,
  type EngineRequest,
  maxEngineRequests,
} from "@espalier/engine-model";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createHarness, createMirror, GENERATED, smallEngine, upFrom } from "./harness.ts";

const flavours = ["vllm", "sglang"] as const;
const prompt = upFrom(1, 18);
/** Ten milliseconds, and one for each token. */
const import16 = { imported: { tokens: 16, setupMs: 10, msPerToken: 1 } };

describe.each(flavours)("what comes from outside, %s", (flavour) => {
  test("joins the first step after it is here, and is not computed", () => {
    const harness = createHarness({ flavour });
    const report = harness.run("A", prompt, 2, import16);
    // 26 ms on the way, a step for two tokens of the prompt, a step for the other token.
    expect(report).toMatchObject({
      cachedTokens: 16,
      importedTokens: 16,
      scheduledMs: 26,
      firstTokenMs: expect.closeTo(26 + 1.02, 9),
      finishReason: "length",
    });
    expect(harness.engine.stats()).toMatchObject({ importedTokens: 16, prefixHits: 0, prefixQueries: 18, waiting: 0 });
    // The blocks are told of with that step, not before.
    expect(harness.batches.at(flavour === "sglang" ? 1 : 0)).toMatchObject({ timeMs: expect.closeTo(27.02, 9) });
    expect(harness.run("B", prompt).cachedTokens).toBe(16);
  });

  test("only what is not cached here is fetched", () => {
    const harness = createHarness({ flavour });
    harness.run("A", prompt.slice(0, 9));
    const sinceMs = harness.nowMs();
    const report = harness.run("B", prompt, 1, import16);
    expect(report).toMatchObject({ cachedTokens: 16, importedTokens: 8 });
    expect(report.scheduledMs - sinceMs).toBeCloseTo(10 + 8, 9);
  });

  test("a prompt that is cached as far is not fetched, and its end is told all the same", () => {
    const arrivals: unknown[] = [];
    const harness = createHarness({ flavour }, 1, { imported: (...reported) => arrivals.push(reported) });
    harness.run("A", prompt);
    const sinceMs = harness.nowMs();
    expect(harness.run("B", prompt, 1, import16)).toMatchObject({ importedTokens: 0, scheduledMs: sinceMs });
    expect(arrivals).toEqual([["B", 0, sinceMs]]);
  });

  test("the last token of the prompt is computed here in any case", () => {
    const harness = createHarness({ flavour });
    const whole = { imported: { tokens: 18, setupMs: 0, msPerToken: 0 } };
    expect(harness.run("A", prompt, 1, whole)).toMatchObject({
      importedTokens: 17,
      firstTokenMs: expect.closeTo(1.01, 9),
    });
    // The seventeenth token is in no full block, and nobody else finds it.
    expect(harness.run("B", prompt).cachedTokens).toBe(16);
  });

  test("others compute meanwhile, and blocks on their way are not shared", () => {
    const harness = createHarness({ flavour, blockCount: 32 });
    harness.submit("A", prompt, 1, import16);
    harness.idle(1);
    expect(harness.engine.stats()).toMatchObject({ importing: 1, waiting: 1, running: 0, freeBlocks: 32 - 5 });
    harness.submit("B", prompt, 1);
    harness.settle();
    expect(harness.report("B")).toMatchObject({ cachedTokens: 0, arrivedMs: 1 });
    expect(harness.report("B").finishedMs).toBeLessThan(harness.report("A").scheduledMs);
    expect(harness.report("A")).toMatchObject({ importedTokens: 16, scheduledMs: 26 });
  });

  test("an observer hears of it before the first token, and may hand in more", () => {
    const heard: string[] = [];
    const harness = createHarness({ flavour }, 1, {
      imported: (id, tokens, timeMs) => {
        heard.push(`${id} has ${tokens} at ${timeMs}`);
        harness.engine.submit(
          { id: "B", promptTokens: Uint32Array.of(7), outputTokens: 1, outputToken: () => GENERATED },
          timeMs,
        );
      },
      token: (id) => heard.push(`${id} speaks`),
    });
    harness.run("A", prompt, 1, import16);
    expect(heard).toEqual(["A has 16 at 26", "A speaks", "B speaks"]);
  });

  test("dropped on its way, it leaves nothing behind", () => {
    const harness = createHarness({ flavour });
    harness.submit("A", prompt, 1, import16);
    harness.idle(5);
    harness.engine.abort("A", harness.nowMs());
    expect(harness.report("A")).toMatchObject({ finishReason: "aborted", importedTokens: 0 });
    expect(harness.engine.stats()).toMatchObject({ importing: 0, waiting: 0, freeBlocks: 16, cachedBlocks: 0 });
    expect(harness.engine.nextEventMs()).toBeUndefined();
  });

  test("one that waits for room holds up nobody's blocks, and gets its own when there is room", () => {
    const harness = createHarness({ flavour, blockCount: 8, maxModelLength: 32 });
    harness.submit("A", upFrom(100, 20), 4);
    harness.engine.advanceTo(0);
    harness.submit("B", upFrom(200, 20), 1, { imported: { tokens: 16, setupMs: 3, msPerToken: 0 } });
    harness.settle();
    const { finishedMs } = harness.report("A");
    expect(harness.report("B").scheduledMs).toBeCloseTo(finishedMs + 3, 9);
  });
});

test("what is lost again is computed, not fetched a second time", () => {
  const harness = createHarness({ blockCount: 8, maxModelLength: 32 });
  harness.submit("A", upFrom(100, 12), 16);
  harness.submit("B", upFrom(200, 10), 12, { imported: { tokens: 8, setupMs: 1, msPerToken: 0 } });
  harness.settle();
  expect(harness.engine.stats().preemptions).toBeGreaterThan(0);
  expect(harness.engine.stats().importedTokens).toBe(8);
  expect(harness.reports.map(({ outputTokens }) => outputTokens).sort()).toEqual([12, 16]);
});

describe.each(flavours)("pinned blocks, %s", (flavour) => {
  test("stay held after the request, and are cached when they are released", () => {
    const harness = createHarness({ flavour });
    harness.run("A", prompt, 1, { pinned: true });
    expect(harness.engine.stats()).toMatchObject({ pinned: 1, running: 0, freeBlocks: 16 - 5, kvUse: 5 / 16 });
    expect(harness.engine.resetPrefixCache(harness.nowMs())).toBe(false);
    expect(harness.engine.release("A", harness.nowMs())).toBe(true);
    expect(harness.engine.release("A", harness.nowMs())).toBe(false);
    expect(harness.engine.stats()).toMatchObject({ pinned: 0, freeBlocks: 16, cachedBlocks: 4 });
    expect(harness.run("B", prompt).cachedTokens).toBe(16);
  });

  test("are not evicted, and who needs them waits until they are released", () => {
    const harness = createHarness({ flavour, blockCount: 8, maxModelLength: 32 });
    harness.run("A", prompt, 1, { pinned: true });
    harness.submit("B", upFrom(100, 20), 1);
    harness.settle();
    // Nothing can happen by itself: the engine rests.
    expect(harness.engine.nextEventMs()).toBeUndefined();
    expect(harness.engine.stats()).toMatchObject({ waiting: 1, running: 0, pinned: 1 });
    harness.idle(100);
    harness.engine.release("A", harness.nowMs());
    const releasedMs = harness.nowMs();
    expect(harness.engine.nextEventMs()).toBe(releasedMs);
    harness.settle();
    expect(harness.report("B")).toMatchObject({ scheduledMs: releasedMs, finishReason: "length" });
  });

  test("an engine that finds no room looks again when another request comes, and when one goes", () => {
    const harness = createHarness({ flavour, blockCount: 8, maxModelLength: 32 });
    harness.run("A", prompt, 1, { pinned: true });
    harness.submit("big", upFrom(100, 20), 1);
    harness.settle();
    harness.idle(10);
    harness.submit("small", [1], 1, { priority: -1 });
    harness.settle();
    expect(harness.report("small").scheduledMs).toBe(10 + harness.report("A").finishedMs);
    harness.submit("next", [2], 1);
    harness.idle(10);
    expect(harness.engine.stats().waiting).toBe(2);
    harness.engine.abort("big", harness.nowMs());
    harness.settle();
    expect(harness.report("next").finishReason).toBe("length");
  });

  test("a request that is dropped pins nothing", () => {
    const harness = createHarness({ flavour });
    harness.submit("A", prompt, 8, { pinned: true });
    harness.idle(2);
    harness.engine.abort("A", harness.nowMs());
    harness.settle();
    expect(harness.report("A").finishReason).toBe("aborted");
    expect(harness.engine.stats()).toMatchObject({ pinned: 0, freeBlocks: 16 });
  });

  test("an id that pins is in use, and pinned requests count among those held", () => {
    const harness = createHarness({ flavour, prefixCaching: true, blockCount: 70_000, maxRunning: 70_000 });
    harness.run("A", [1], 1, { pinned: true });
    expect(() => harness.submit("A", [1])).toThrow("request A is already in the engine");
    for (let at = 1; at < maxEngineRequests; at++) harness.submit(`${at}`, [1]);
    expect(() => harness.submit("more", [1])).toThrow(`the engine is at its limit of ${maxEngineRequests} requests`);
    harness.engine.release("A", harness.nowMs());
    harness.submit("more", [1]);
  });
});

test.each([
  [{ tokens: 0, setupMs: 0, msPerToken: 0 }, "0 tokens to import are not 1 to 18"],
  [{ tokens: 19, setupMs: 0, msPerToken: 0 }, "19 tokens to import"],
  [{ tokens: 1.5, setupMs: 0, msPerToken: 0 }, "1.5 tokens"],
  [{ tokens: 1, setupMs: -1, msPerToken: 0 }, "setupMs -1"],
  [{ tokens: 1, setupMs: 0, msPerToken: Number.NaN }, "msPerToken NaN"],
])("refuses %j", (imported, message) => {
  const harness = createHarness();
  expect(() => harness.submit("A", prompt, 1, { imported })).toThrow(message);
});

test("what is cached of a prompt can be asked without a request", () => {
  const harness = createHarness();
  harness.run("A", prompt);
  const asked = { id: "", outputTokens: 1, outputToken: () => 0 };
  const cached = (tokens: number[]) =>
    harness.engine.cachedTokens({ ...asked, promptTokens: Uint32Array.from(tokens) }, harness.nowMs());
  expect(cached(prompt)).toBe(16);
  expect(cached(prompt.slice(0, 9))).toBe(8);
  expect(cached(upFrom(50, 9))).toBe(0);
  expect(() => cached([])).toThrow("the prompt is empty");
});

/** Durations tell what a step computed. */
const playParameters = (flavour: "vllm" | "sglang"): EngineParameters => ({
  ...smallEngine,
  flavour,
  blockCount: 20,
  maxBatchedTokens: 12,
});

function anyRequest(id: string, random: Random): EngineRequest {
  const length = 1 + random.integer(24);
  return {
    id,
    promptTokens: Uint32Array.from(upFrom(100 * random.integer(3), length)),
    outputTokens: 1 + random.integer(8),
    outputToken: (index) => GENERATED + index,
    ...(random.integer(2) === 0 && {
      imported: { tokens: 1 + random.integer(length), setupMs: random.integer(5), msPerToken: random.float() },
    }),
    pinned: random.integer(3) === 0,
  };
}

/** Lets requests come, be fetched, be pinned, be released and be dropped, and notes what cannot be. */
function play(parameters: EngineParameters, random: Random, moves: number): string[] {
  const faults: string[] = [];
  const mirror = createMirror(parameters.blockSize);
  const asked = new Map<string, EngineRequest>();
  const pinned = new Set<string>();
  const open = new Set<string>();
  const engine: Engine = createEngine({
    parameters,
    hashSeed: 3,
    observer: {
      imported: (id, tokens) => {
        if (tokens > (asked.get(id)?.imported?.tokens ?? 0)) faults.push(`${id}: ${tokens} came, more than asked for`);
      },
      finished: ({ id, finishReason, cachedTokens, promptTokens }) => {
        open.delete(id);
        if (finishReason === "length" && asked.get(id)?.pinned) pinned.add(id);
        if (cachedTokens >= promptTokens) faults.push(`${id}: every token cached`);
      },
      events: (events) => mirror.apply(events),
    },
  });
  let nowMs = 0;
  const anyOf = (ids: Set<string>): string | undefined => [...ids][random.integer(Math.max(1, ids.size))];
  const moveOnce = (move: number): void => {
    nowMs += random.float() * 4;
    const choice = random.integer(6);
    if (choice < 3) {
      const request = anyRequest(`${move}`, random);
      asked.set(request.id, request);
      open.add(request.id);
      engine.submit(request, nowMs);
    } else if (choice === 3) {
      const id = anyOf(open);
      if (id !== undefined) engine.abort(id, nowMs);
    } else {
      engine.advanceTo(nowMs);
      const id = anyOf(pinned);
      if (id === undefined) return;
      pinned.delete(id);
      if (!engine.release(id, nowMs)) faults.push(`${id} was not pinned`);
    }
    const { running, waiting, finished, pinned: held, freeBlocks } = engine.stats();
    if (running + waiting + finished !== asked.size) faults.push(`${move}: a request was lost`);
    if (held !== pinned.size) faults.push(`${move}: ${held} pinned, not ${pinned.size}`);
    if (freeBlocks < 0) faults.push(`${move}: ${freeBlocks} free`);
  };
  for (let move = 0; move < moves; move++) moveOnce(move);
  // Whoever waits for pinned blocks gets on when they are released, one after the other.
  for (let rounds = 0; open.size > 0 || pinned.size > 0; rounds++) {
    if (rounds > 1_000) return [...faults, `${open.size} requests never end`];
    nowMs += 1_000;
    engine.advanceTo(nowMs);
    for (const id of pinned) engine.release(id, nowMs);
    pinned.clear();
  }
  const { freeBlocks, importing, cachedBlocks } = engine.stats();
  if (freeBlocks !== parameters.blockCount || importing > 0) faults.push(`${freeBlocks} free, ${importing} importing`);
  if (cachedBlocks !== mirror.size()) faults.push(`${cachedBlocks} cached, ${mirror.size()} told`);
  return [...faults, ...mirror.faults];
}

test.each(flavours)("nothing is lost, leaks or hangs, whatever comes: %s", (flavour) => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
      expect(play(playParameters(flavour), createSeededRandom(seed), 120)).toEqual([]);
    }),
    { numRuns: randomRuns(60) },
  );
});

test.each(flavours)("both forms of the engine import and pin alike: %s", (flavour) => {
  const parameters = playParameters(flavour);
  const random = createSeededRandom(5);
  const reported: [string[], string[]] = [[], []];
  const tokens = createEngine({
    parameters,
    hashSeed: 1,
    observer: {
      imported: (id, count, timeMs) => void reported[0].push(`${id} has ${count} at ${timeMs}`),
      finished: ({ id, ...report }) => void reported[0].push(JSON.stringify({ ...report, id: Number(id) })),
    },
  });
  const blocks = createBlockEngine({
    parameters,
    observer: {
      imported: (id, count, timeMs) => void reported[1].push(`${id} has ${count} at ${timeMs}`),
      finished: ({ id, ...report }) => void reported[1].push(JSON.stringify({ ...report, id })),
    },
  });
  let nowMs = 0;
  for (let id = 0; id < 300; id++) {
    nowMs += random.float() * 6;
    const length = 1 + random.integer(24);
    const family = 1 + random.integer(3);
    const outputTokens = 1 + random.integer(8);
    // Chains of one family are prefixes of each other as long as only prompts are cached: no output fills a block.
    const chain = Uint32Array.from({ length: 2 * 8 }, (_, at) => family * 0x1_0000 + at);
    const more = {
      ...(id % 2 === 0 && { imported: { tokens: length, setupMs: 2, msPerToken: 0.5 } }),
      pinned: id % 5 === 0,
    };
    const outputToken = (index: number): number => family * 100 + length + index;
    const promptTokens = Uint32Array.from(upFrom(family * 100, length));
    tokens.submit({ id: `${id}`, promptTokens, outputTokens, outputToken, ...more }, nowMs);
    blocks.submit({ id, promptTokens: length, outputTokens, chain, ...more }, nowMs);
    if (id % 7 !== 0) continue;
    for (let old = 0; old <= id; old += 5) expect(blocks.release(old, nowMs)).toBe(tokens.release(`${old}`, nowMs));
  }
  tokens.advanceTo(nowMs + 10_000);
  blocks.advanceTo(nowMs + 10_000);
  expect(reported[1]).toEqual(reported[0]);
  expect(reported[0].length).toBeGreaterThan(300);
  expect(blocks.stats()).toEqual(tokens.stats());
});
