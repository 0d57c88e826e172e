import { createSeededRandom } from "@espalier/core";
import { createEngine, type EngineParameters, type KvEvent } from "@espalier/engine-model";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createHarness, type Harness, smallEngine, upFrom } from "./harness.ts";

/** Room for one prompt of 32 tokens with its output; every block of CPU memory takes 2 ms on its way back. */
const cramped: Partial<EngineParameters> = { blockCount: 9, cpuBlocks: 64, cpuLoadMsPerBlock: 2, maxBatchedTokens: 64 };

const isOfCpu = (event: KvEvent): boolean => event.type !== "cleared" && event.medium !== undefined;

const hashesOf = (event: KvEvent): readonly bigint[] => (event.type === "cleared" ? [] : event.hashes);

const between = (harness: Harness, act: () => void): KvEvent[] => {
  const before = harness.events().length;
  act();
  return harness.events().slice(before);
};

describe.each(["vllm", "sglang"] as const)("CPU memory behind %s", (flavour) => {
  const medium = flavour === "vllm" ? "CPU" : "CPU_PINNED";

  test("what GPU memory gives up comes back from it, at its cost and beside the steps", () => {
    const harness = createHarness({ ...cramped, flavour });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    const sinceMs = harness.nowMs();
    const report = harness.run("A2", [...upFrom(1, 32), 77], 1);
    const { cpuBlocks, loadedTokens, prefixHits, importedTokens } = harness.engine.stats();
    expect(report.cachedTokens).toBe(32);
    expect(report.importedTokens).toBe(0);
    expect(importedTokens).toBe(0);
    expect(loadedTokens + prefixHits).toBe(32);
    expect(loadedTokens).toBeGreaterThanOrEqual(24);
    expect(cpuBlocks).toBeGreaterThanOrEqual(loadedTokens / 4);
    // The blocks, then one step over the last token.
    expect(report.firstTokenMs - sinceMs).toBeCloseTo((loadedTokens / 4) * 2 + 1 + 0.01, 6);
  });

  test("what leaves GPU memory is in CPU memory", () => {
    const harness = createHarness({ ...cramped, flavour });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    const inCpu = new Set<bigint>();
    let removed = 0;
    for (const event of harness.events()) {
      if (event.type === "stored" && event.medium === medium) for (const hash of event.hashes) inCpu.add(hash);
      if (event.type !== "removed") continue;
      expect(event.medium).toBeUndefined();
      for (const hash of event.hashes) expect(inCpu).toContain(hash);
      removed += event.hashes.length;
    }
    expect(removed).toBeGreaterThanOrEqual(6);
    expect(inCpu.size).toBe(16);
  });

  test("it is bounded: one block past it, the one that was not used for longest goes", () => {
    const harness = createHarness({ ...cramped, cpuBlocks: 8, flavour });
    for (let at = 0; at < 2; at++) harness.run(`p${at}`, upFrom(100 * at + 1, 32));
    while (harness.engine.stats().cpuBlocks < 8) {
      harness.run(`f${harness.nowMs()}`, upFrom(1_000 + Math.round(harness.nowMs() * 1_000), 4));
    }
    const events = between(harness, () => harness.run("x", upFrom(900, 32)));
    expect(harness.engine.stats().cpuBlocks).toBe(8);
    const ofCpu = events.filter(isOfCpu);
    // Room is made, then used.
    expect(ofCpu.slice(0, 2).map((event) => event.type)).toEqual(["removed", "stored"]);
    const count = (type: string): number =>
      ofCpu.reduce((sum, event) => sum + (event.type === type ? hashesOf(event).length : 0), 0);
    expect([count("removed"), count("stored")]).toEqual([8, 8]);
    // And life goes on: what was dropped is computed and kept again.
    expect(harness.run("p0 again", upFrom(1, 33)).cachedTokens).toBe(0);
    expect(harness.run("x again", [...upFrom(900, 32), 7]).cachedTokens).toBe(0);
    expect(harness.engine.stats().cpuBlocks).toBe(8);
  });
});

describe.each(["vllm", "sglang"] as const)("loads of %s from CPU memory", (flavour) => {
  test("what was loaded is not loaded again, and several loads share one link", () => {
    const harness = createHarness({ ...cramped, blockCount: 20, maxModelLength: 80, flavour });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    harness.run("C", upFrom(201, 76));
    const sinceMs = harness.nowMs();
    harness.submit("A2", upFrom(1, 33));
    harness.submit("B2", upFrom(101, 33));
    harness.settle();
    const { loadedTokens } = harness.engine.stats();
    const lastMs = Math.max(harness.report("A2").firstTokenMs, harness.report("B2").firstTokenMs);
    expect(loadedTokens).toBeGreaterThanOrEqual(48);
    expect(lastMs - sinceMs).toBeGreaterThanOrEqual((loadedTokens / 4) * 2);
    expect(harness.run("A3", upFrom(1, 33)).cachedTokens).toBe(32);
    expect(harness.engine.stats().loadedTokens).toBe(loadedTokens);
  });

  test("others are computed while blocks are on their way", () => {
    const harness = createHarness({ ...cramped, blockCount: 16, maxModelLength: 64, flavour, cpuLoadMsPerBlock: 50 });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 60));
    harness.submit("A2", upFrom(1, 33));
    harness.submit("C", upFrom(301, 8));
    harness.settle();
    expect(harness.engine.stats().loadedTokens).toBeGreaterThan(0);
    expect(harness.report("C").firstTokenMs).toBeLessThan(harness.report("A2").firstTokenMs - 50);
  });

  test("a request that is dropped while its blocks are on their way gives everything back", () => {
    const harness = createHarness({ ...cramped, flavour, cpuLoadMsPerBlock: 100 });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    harness.submit("A2", upFrom(1, 33));
    harness.idle(5);
    expect(harness.engine.stats()).toMatchObject({ importing: 1, waiting: 1, running: 0 });
    harness.engine.abort("A2", harness.nowMs());
    expect(harness.engine.stats()).toMatchObject({ importing: 0, freeBlocks: 9, loadedTokens: 0, finished: 3 });
    expect(harness.engine.nextEventMs()).toBeUndefined();
    expect(harness.run("A3", upFrom(1, 33)).cachedTokens).toBe(32);
  });

  test("what comes from another engine is not looked for in CPU memory", () => {
    const harness = createHarness({ ...cramped, flavour });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    const sinceMs = harness.nowMs();
    const report = harness.run("A2", upFrom(1, 33), 1, { imported: { tokens: 33, setupMs: 5, msPerToken: 0 } });
    expect(report.importedTokens).toBeGreaterThan(0);
    expect(report.cachedTokens).toBe(32);
    expect(harness.engine.stats().loadedTokens).toBe(0);
    expect(report.firstTokenMs - sinceMs).toBeCloseTo(5 + 1.01, 6);
  });

  test("a request that was to have tokens from outside, and finds them in CPU memory later, is told of none", () => {
    const arrivals: number[] = [];
    const harness = createHarness({ ...cramped, flavour }, 1, { imported: (_, tokens) => void arrivals.push(tokens) });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    const head = harness.engine.stats().prefixHits;
    harness.run("A2", upFrom(1, 33), 1, { imported: { tokens: 4, setupMs: 5, msPerToken: 0 } });
    const fromGpu = harness.engine.stats().prefixHits - head;
    expect(arrivals).toEqual([fromGpu >= 4 ? 0 : 4]);
  });
});

describe.each(["vllm", "sglang"] as const)("contents of CPU memory behind %s", (flavour) => {
  test("a reset empties it, too", () => {
    const harness = createHarness({ ...cramped, flavour });
    harness.run("A", upFrom(1, 32));
    harness.run("B", upFrom(101, 32));
    expect(harness.engine.resetPrefixCache(harness.nowMs())).toBe(true);
    expect(harness.engine.stats()).toMatchObject({ cpuBlocks: 0, cachedBlocks: 0 });
    expect(harness.run("A2", upFrom(1, 33)).cachedTokens).toBe(0);
    // And it fills again.
    harness.run("B2", upFrom(101, 32));
    expect(harness.engine.stats().cpuBlocks).toBeGreaterThan(0);
  });

  test("without a prefix cache there is nothing to keep", () => {
    const harness = createHarness({ ...cramped, prefixCaching: false, flavour });
    for (const id of ["A", "B", "C"]) harness.run(id, upFrom(1, 32));
    expect(harness.engine.stats()).toMatchObject({ cpuBlocks: 0, loadedTokens: 0 });
  });

  test("adapters and salts have blocks of their own there", () => {
    const harness = createHarness({ ...cramped, flavour });
    harness.run("A", upFrom(1, 32), 1, { adapter: "x" });
    harness.run("B", upFrom(101, 32));
    const probe = (more: object) =>
      harness.engine.cachedTokens(
        { id: "p", promptTokens: Uint32Array.from(upFrom(1, 33)), outputTokens: 1, outputToken: () => 0, ...more },
        harness.nowMs(),
      );
    expect(probe({ adapter: "x" })).toBe(32);
    expect([probe({}), probe({ adapter: "y" }), probe({ adapter: "x", cacheSalt: "s" })]).toEqual([0, 0, 0]);
  });

  test("a prompt is found as far as GPU memory and CPU memory have it, seed after seed", () => {
    for (const seed of fixedSeeds(4, 1)) playAgainstSets(flavour, seed);
  });
});

/** Requests one after the other: what is cached must be what the events of both memories say. */
function playAgainstSets(flavour: "vllm" | "sglang", seed: number): void {
  const random = createSeededRandom(seed);
  const cpuBlocks = 15 + random.integer(30);
  const harness = createHarness({ flavour, blockCount: 14, cpuBlocks, maxBatchedTokens: 64 }, seed);
  const gpu = new Map<string, number>();
  const cpu = new Set<string>();
  const names = new Map<bigint, string>();
  let read = 0;
  let loads = 0;
  const hear = (): void => {
    for (const event of harness.batches.slice(read).flatMap(({ events }) => events)) {
      if (event.type === "cleared") continue;
      let name = event.type === "stored" && event.parentHash !== undefined ? names.get(event.parentHash)! : "";
      for (const [at, hash] of event.hashes.entries()) {
        if (event.type === "stored" && event.tokens.length > 0) {
          name += `/${event.tokens.slice(at * 4, at * 4 + 4).join(",")}`;
          names.set(hash, name);
        }
        const block = names.get(hash)!;
        expect(block).toBeDefined();
        if (event.medium === undefined) gpu.set(block, (gpu.get(block) ?? 0) + (event.type === "stored" ? 1 : -1));
        else if (event.type === "stored") cpu.add(block);
        else expect(cpu.delete(block)).toBe(true);
      }
    }
    read = harness.batches.length;
  };
  for (let at = 0; at < 120; at++) {
    const first = random.integer(4);
    const length = 2 + random.integer(40);
    const prompt = Array.from({ length }, (_, place) =>
      place === 0 ? first : random.float() < 0.04 ? 900 : place + 100,
    );
    let expected = 0;
    let name = "";
    const nameTo = (end: number): string => `${name}/${prompt.slice(end - 4, end).join(",")}`;
    for (; expected + 4 < length && (gpu.get(nameTo(expected + 4)) ?? 0) > 0; expected += 4)
      name = nameTo(expected + 4);
    const local = expected;
    // vLLM also loads a block with the last token; SGLang loads nothing below 10 tokens.
    const last = flavour === "vllm" ? length : length - 1;
    for (; expected + 4 <= last && cpu.has(nameTo(expected + 4)); expected += 4) name = nameTo(expected + 4);
    if (flavour === "sglang" && expected - local < 10) expected = local;
    const before = harness.engine.stats().loadedTokens;
    const report = harness.run(`r${at}`, prompt, 1 + random.integer(6));
    expect(report.cachedTokens, `seed ${seed}, request ${at}`).toBe(expected);
    expect(harness.engine.stats().loadedTokens - before).toBe(expected - local);
    if (expected > local) loads++;
    hear();
    expect(harness.engine.stats().cpuBlocks).toBe(cpu.size);
    expect(cpu.size).toBeLessThanOrEqual(cpuBlocks);
  }
  expect(loads).toBeGreaterThan(5);
}

test("parameters of CPU memory that make no sense are refused", () => {
  const observer = {};
  for (const wrong of [{ cpuBlocks: -1 }, { cpuBlocks: 1.5 }, { cpuBlocks: 2 ** 24 + 1 }, { cpuLoadMsPerBlock: -1 }]) {
    const parameters = { ...smallEngine, ...wrong };
    expect(() => createEngine({ parameters, hashSeed: 1, observer })).toThrow(RangeError);
  }
});
