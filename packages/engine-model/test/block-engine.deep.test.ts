import { createSeededRandom, type Random } from "@espalier/core";
import type { EngineParameters } from "@espalier/engine-model";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type BothForms, createBothForms, holesIn } from "./both-forms.ts";
import { smallEngine } from "./harness.ts";

/** How often something happened in all histories of a test: what never happens is not tested. */
interface Seen {
  preemptions: number;
  evictions: number;
  copies: number;
  resets: number;
  holes: number;
  /** Blocks that went to CPU memory, or were given up there; tokens that came back from it. */
  offloaded: number;
  discarded: number;
  loaded: number;
}

/** Prompts begin alike: a tree of few tokens, so that they share blocks and part inside them. */
function randomPrompt(random: Random, most: number): Uint32Array {
  const length = 1 + random.integer(Math.min(60, most - 40));
  return Uint32Array.from({ length }, (_, at) => (random.float() < 0.03 ? 500 + at : at));
}

/** Compares what both forms told since the last call. */
function createComparison({ tokenEngine, blockEngine, tokenSide, blockSide }: BothForms): () => void {
  let changes = 0;
  let reports = 0;
  return () => {
    expect(blockEngine.stats()).toEqual(tokenEngine.stats());
    expect(blockSide.changes.slice(changes)).toEqual(tokenSide.changes.slice(changes));
    expect(blockSide.presence.size).toBe(tokenSide.presence.size);
    expect(blockSide.firstTokens.slice(reports)).toEqual(tokenSide.firstTokens.slice(reports));
    const expected = tokenSide.reports.slice(reports).map((report) => ({ ...report, id: Number(report.id) }));
    expect(blockSide.reports.slice(reports)).toEqual(expected);
    changes = blockSide.changes.length;
    reports = blockSide.reports.length;
  };
}

/** Gives both forms the same random requests, drops some, and compares after every step of the one with tokens. */
function play(parameters: EngineParameters, random: Random, seen: Seen): void {
  const forms = createBothForms(parameters, random);
  const compare = createComparison(forms);
  const { tokenEngine, blockEngine, tokenSide, blockSide } = forms;
  const most = Math.min(parameters.maxModelLength, parameters.blockCount * parameters.blockSize);
  let nowMs = 0;
  let asked = 0;
  for (let move = 0; move < 80; move++) {
    const kind = random.float();
    // Half of what happens falls between the ends of steps.
    if (random.float() < 0.5) nowMs += random.float() * 3;
    if (kind < 0.3) {
      forms.submit(asked++, randomPrompt(random, most), 1 + random.integer(40), random.integer(3), nowMs);
    } else if (kind < 0.36 && asked > 0) {
      const id = random.integer(asked);
      tokenEngine.abort(`${id}`, nowMs);
      blockEngine.abort(id, nowMs);
    } else if (kind < 0.4) {
      const done = tokenEngine.resetPrefixCache(nowMs);
      expect(blockEngine.resetPrefixCache(nowMs)).toBe(done);
      if (done) seen.resets++;
    } else {
      nowMs = Math.max(nowMs, tokenEngine.nextEventMs() ?? nowMs);
      tokenEngine.advanceTo(nowMs);
      blockEngine.advanceTo(nowMs);
    }
    compare();
  }
  for (let at = tokenEngine.nextEventMs(); at !== undefined; at = tokenEngine.nextEventMs()) {
    tokenEngine.advanceTo(at);
    blockEngine.advanceTo(at);
    seen.holes += holesIn(tokenSide.presence, forms.names);
    compare();
  }
  expect(blockSide.presence).toEqual(tokenSide.presence);
  expect(blockEngine.nextEventMs()).toBeUndefined();
  expect(blockEngine.stats()).toMatchObject({ running: 0, waiting: 0, importing: 0, kvUse: 0, finished: asked });
  seen.copies += tokenSide.copies;
  seen.preemptions += tokenEngine.stats().preemptions;
  const count = (start: string): number => tokenSide.changes.filter((line) => line.startsWith(start)).length;
  seen.evictions += count("-");
  seen.offloaded += count("c+");
  seen.discarded += count("c-");
  seen.loaded += tokenEngine.stats().loadedTokens;
}

/** Everything is compared after every step, on machines that do other things beside. */
const timeoutMs = 60_000;

describe("an engine with hashes is the one with tokens", () => {
  const engines = fc.record({
    freeOrder: fc.constantFrom("uncached-first" as const, "by-age" as const),
    blockSize: fc.constantFrom(1, 2, 4, 8, 16),
    blockCount: fc.integer({ min: 52, max: 90 }),
    maxBatchedTokens: fc.integer({ min: 1, max: 60 }),
    maxRunning: fc.integer({ min: 1, max: 8 }),
    prefixCaching: fc.constantFrom(true, true, true, false),
    decodeMsPerContextToken: fc.constantFrom(0, 0.0137),
    cpuBlocks: fc.constantFrom(0, 3, 60),
    cpuLoadMsPerBlock: fc.constantFrom(0, 0.3),
  });

  test.each([
    ["vllm", "all"],
    ["sglang", "write_through"],
    ["sglang", "write_back"],
  ] as const)(
    "%s, which writes to CPU memory as %s: the same reports, changes and counts after every step",
    (flavour, cpuWrites) => {
      const never = {
        preemptions: 0,
        evictions: 0,
        copies: 0,
        resets: 0,
        holes: 0,
        offloaded: 0,
        discarded: 0,
        loaded: 0,
      };
      const seen: Seen = { ...never };
      fc.assert(
        fc.property(engines, fc.integer(), (engine, seed) => {
          // Blocks are few enough that requests evict and preempt each other at every block size.
          const blockCount = Math.max(
            Math.ceil(104 / engine.blockSize),
            Math.floor(engine.blockCount / engine.blockSize),
          );
          const parameters = { ...smallEngine, maxModelLength: 104, ...engine, blockCount, flavour, cpuWrites };
          play(parameters, createSeededRandom(seed), seen);
        }),
        { numRuns: 25, seed: 3 },
      );
      expect(seen.preemptions).toBeGreaterThan(0);
      expect(seen.evictions).toBeGreaterThan(1_000);
      expect(seen.resets).toBeGreaterThan(3);
      for (const cpu of [seen.offloaded, seen.discarded, seen.loaded]) expect(cpu).toBeGreaterThan(100);
      // Only vLLM keeps several blocks of one content.
      expect(seen.copies > 0).toBe(flavour === "vllm");
      // After no step is a block gone before those below it.
      expect(seen.holes).toBe(0);
    },
    timeoutMs,
  );
});
