/** LoRA adapters in an engine: which ones run at once, which stay loaded, what loading costs. */
import { createSeededRandom } from "@espalier/core";
import { createBlockEngine, createEngine, type EngineParameters } from "@espalier/engine-model";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createHarness, type Harness, smallEngine, upFrom } from "./harness.ts";

const twoSlots = { adapterSlots: 2, adapterLoadMs: 100, maxRunning: 8, blockCount: 64 };

let prompts = 0;
/** A request of its own tokens for an adapter. */
function ask(harness: Harness, id: string, adapter: string | undefined, outputTokens = 1): void {
  prompts += 10;
  harness.submit(id, upFrom(prompts, 3), outputTokens, adapter === undefined ? {} : { adapter });
}

/** Adapters that each of these requests had to load, when one runs after the other. */
function loadsOf(harness: Harness, adapters: readonly string[]): number[] {
  return adapters.map((adapter, at) => {
    const before = harness.engine.stats().adapterLoads;
    ask(harness, `${at}`, adapter);
    harness.settle();
    return harness.engine.stats().adapterLoads - before;
  });
}

describe("loading", () => {
  test("adds its time to the step in which the first request for the adapter begins, once for each adapter", () => {
    const harness = createHarness({ ...twoSlots, adapterSlots: 3 });
    ask(harness, "a", "one");
    ask(harness, "b", "one");
    ask(harness, "c", "two");
    ask(harness, "d", undefined);
    harness.settle();
    for (const id of ["a", "b", "c", "d"]) expect(harness.report(id).firstTokenMs).toBeCloseTo(1 + 0.12 + 200, 9);
    ask(harness, "e", "two", 2);
    harness.settle();
    // One step for the prompt and one for a decode, neither of which loads.
    const { scheduledMs, finishedMs } = harness.report("e");
    expect(finishedMs - scheduledMs).toBeCloseTo(1.03 + 1.1, 9);
    expect(harness.engine.stats()).toMatchObject({ adapterLoads: 2, busyMs: expect.closeTo(201.12 + 2.13, 9) });
  });

  test("costs nothing unless told, and without slots an adapter is never given up", () => {
    const harness = createHarness({ maxRunning: 8 });
    expect(loadsOf(harness, ["a", "b", "c", "d", "a", "b", "c", "d"])).toEqual([1, 1, 1, 1, 0, 0, 0, 0]);
    expect(harness.engine.stats().busyMs).toBeCloseTo(8 * 1.03, 9);
  });
});

describe("slots", () => {
  test("requests for one adapter more than there are slots wait; others pass them", () => {
    const harness = createHarness(twoSlots);
    ask(harness, "a", "one", 10);
    ask(harness, "b", "two", 4);
    ask(harness, "c", "three", 4);
    ask(harness, "d", "four", 2);
    ask(harness, "e", "one", 1);
    ask(harness, "f", undefined, 1);
    harness.engine.advanceTo(0);
    expect(harness.engine.stats()).toMatchObject({ running: 4, waiting: 2 });
    expect(harness.engine.adapterUse()).toEqual({ running: ["one", "two"], waiting: ["three", "four"] });
    harness.settle();
    const started = (id: string): number => harness.report(id).scheduledMs;
    expect([started("a"), started("b"), started("e"), started("f")]).toEqual([0, 0, 0, 0]);
    // The slot of `two` is free once `b` is over, and goes to who waits longest.
    expect(started("c")).toBeGreaterThanOrEqual(harness.report("b").finishedMs);
    expect(started("d")).toBeGreaterThanOrEqual(harness.report("c").finishedMs);
    expect(harness.engine.adapterUse()).toEqual({ running: [], waiting: [] });
    expect(harness.engine.stats().adapterLoads).toBe(4);
  });

  test("a lower priority value still goes first among those that wait for a slot", () => {
    const harness = createHarness({ ...twoSlots, adapterSlots: 1 });
    ask(harness, "first", "x", 4);
    harness.engine.advanceTo(0);
    harness.submit("late", upFrom(900, 3), 1, { adapter: "y", priority: 5 });
    harness.submit("early", upFrom(950, 3), 1, { adapter: "z", priority: -5 });
    harness.settle();
    expect(harness.report("early").scheduledMs).toBeLessThan(harness.report("late").scheduledMs);
  });

  test("an aborted request gives its slot back, one that waits gives up its turn", () => {
    const harness = createHarness({ ...twoSlots, adapterSlots: 1 });
    ask(harness, "a", "x", 20);
    ask(harness, "b", "y", 2);
    ask(harness, "c", "z", 2);
    harness.engine.advanceTo(0);
    harness.engine.abort("b", 0);
    harness.engine.abort("a", 0);
    harness.settle();
    expect(harness.reports.map(({ id, finishReason }) => [id, finishReason])).toEqual([
      ["b", "aborted"],
      ["a", "aborted"],
      ["c", "length"],
    ]);
    expect(harness.engine.stats()).toMatchObject({ adapterLoads: 2, running: 0, waiting: 0 });
  });

  test("a preempted request gives its slot back and comes again", () => {
    const harness = createHarness({ ...twoSlots, adapterSlots: 1, blockCount: 6, maxRunning: 4 });
    ask(harness, "a", "x", 14);
    ask(harness, "b", "x", 14);
    ask(harness, "c", "y", 2);
    harness.settle();
    expect(harness.engine.stats().preemptions).toBeGreaterThan(0);
    for (const id of ["a", "b", "c"]) expect(harness.report(id).finishReason).toBe("length");
    expect(harness.engine.adapterUse()).toEqual({ running: [], waiting: [] });
  });
});

test.each(["vllm", "sglang"] as const)(
  "%s: random requests never run for more adapters than slots, and all of them end",
  (flavour) => {
    for (const seed of fixedSeeds(30, 1)) {
      const random = createSeededRandom(seed);
      const adapterSlots = 1 + random.integer(4);
      const harness = createHarness({ ...twoSlots, flavour, adapterSlots, adapterLoadMs: 3 });
      const count = 40;
      for (let at = 0; at < count; at++) {
        const adapter = random.integer(4) === 0 ? undefined : `adapter-${random.integer(7)}`;
        ask(harness, `${at}`, adapter, 1 + random.integer(6));
        harness.idle(random.integer(8));
        const { running, waiting } = harness.engine.adapterUse();
        expect(running.length, `seed ${seed}`).toBeLessThanOrEqual(adapterSlots);
        for (const names of [running, waiting]) expect(new Set(names).size).toBe(names.length);
        if (random.integer(10) === 0) harness.engine.abort(`${random.integer(at + 1)}`, harness.nowMs());
      }
      harness.settle();
      expect(harness.reports, `seed ${seed}`).toHaveLength(count);
      expect(harness.engine.stats(), `seed ${seed}`).toMatchObject({ running: 0, waiting: 0 });
    }
  },
);

test("requests one after the other load what a cache of the adapters used last would miss", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const random = createSeededRandom(seed);
    const adapterSlots = 1 + random.integer(5);
    const asked = Array.from({ length: 100 }, () => `adapter-${random.integer(8)}`);
    let recent: string[] = [];
    const missed = asked.map((adapter) => {
      const isMissing = !recent.includes(adapter);
      recent = [adapter, ...recent.filter((name) => name !== adapter)].slice(0, adapterSlots);
      return isMissing ? 1 : 0;
    });
    expect(loadsOf(createHarness({ ...twoSlots, adapterSlots }), asked), `seed ${seed}`).toEqual(missed);
  }
});

test("an engine for requests without tokens does the same", () => {
  const parameters: EngineParameters = { ...smallEngine, ...twoSlots, blockSize: 4 };
  const ends = { tokens: [] as number[], blocks: [] as number[] };
  const tokens = createEngine({
    parameters,
    hashSeed: 1,
    observer: { finished: ({ finishedMs }) => void ends.tokens.push(finishedMs) },
  });
  const blocks = createBlockEngine({
    parameters,
    observer: { finished: ({ finishedMs }) => void ends.blocks.push(finishedMs) },
  });
  const random = createSeededRandom(4);
  for (let id = 0; id < 60; id++) {
    const adapter = `adapter-${random.integer(5)}`;
    const outputTokens = 1 + random.integer(9);
    const chain = Uint32Array.from({ length: 8 }, () => random.integer(2 ** 32));
    const promptTokens = Uint32Array.from({ length: 5 }, () => random.integer(2 ** 31));
    const atMs = id * 20;
    tokens.submit({ id: `${id}`, promptTokens, outputTokens, outputToken: (at) => at, adapter }, atMs);
    blocks.submit({ id, promptTokens: 5, outputTokens, chain, adapter }, atMs);
    expect(blocks.adapterUse()).toEqual(tokens.adapterUse());
  }
  for (const engine of [tokens, blocks]) {
    for (let at = engine.nextEventMs(); at !== undefined; at = engine.nextEventMs()) engine.advanceTo(at);
  }
  expect(ends.blocks).toEqual(ends.tokens);
  expect(blocks.stats().adapterLoads).toBe(tokens.stats().adapterLoads);
  expect(tokens.stats().adapterLoads).toBeGreaterThan(10);
});

test.each([
  [{ adapterSlots: 0 }, "adapterSlots"],
  [{ adapterSlots: 1.5 }, "adapterSlots"],
  [{ adapterLoadMs: -1 }, "adapterLoadMs"],
  [{ adapterLoadMs: Number.NaN }, "adapterLoadMs"],
])("refuses %j", (wrong, word) => {
  expect(() => createHarness(wrong)).toThrow(RangeError);
  expect(() => createHarness(wrong)).toThrow(word);
});
