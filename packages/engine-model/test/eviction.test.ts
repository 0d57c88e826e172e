import type { KvEvent } from "@espalier/engine-model";
import { expect, test } from "vitest";
import { createHarness, type Harness, upFrom } from "./harness.ts";

/** The first token of every block given up, in order: removals are named by what was stored. */
function evicted(harness: Harness): number[][] {
  const names = new Map<bigint, number>();
  const removals: number[][] = [];
  for (const event of harness.events()) {
    if (event.type === "stored") {
      for (const [at, hash] of event.hashes.entries()) names.set(hash, event.tokens[at * event.blockSize]!);
    }
    if (event.type === "removed") removals.push(event.hashes.map((hash) => names.get(hash)!));
  }
  return removals;
}

const fours = (first: number, blocks: number): number[] => upFrom(first, 4 * blocks + 1);

test("vLLM evicts what was freed longest ago, the end of a request before its beginning, one block per event", () => {
  // Prompts of n blocks and one token: n full blocks, and one that never fills.
  const harness = createHarness({ blockCount: 8 });
  harness.run("old", fours(100, 2));
  harness.run("new", fours(200, 2));
  // 5 blocks are wanted: the 4 that hold nothing, then the last one of `old`.
  harness.run("next", fours(300, 4));
  expect(evicted(harness)).toEqual([[104]]);
  harness.run("last", fours(400, 4));
  // One block of `next` was never full and is taken first; then by age.
  expect(evicted(harness)).toEqual([[104], [100], [204], [200], [312]]);
});

test("vLLM up to 0.23 puts blocks without content behind the others", () => {
  const modern = createHarness({ blockCount: 4 });
  const old = createHarness({ blockCount: 4, freeOrder: "by-age" });
  for (const harness of [modern, old]) {
    // Holds two blocks; the second never fills.
    harness.run("first", fours(100, 1));
    // Takes the two that were never used, which lie in front of those of `first`.
    harness.run("second", fours(200, 1));
    harness.run("third", fours(300, 1));
  }
  // Modern: the unfilled block of `second`, then that of `first`. By age: those of `first`, its unfilled one first.
  expect(evicted(modern)).toEqual([]);
  expect(evicted(old)).toEqual([[100]]);
});

test("vLLM leaves a block that is hit again in place: it is as new as its last release", () => {
  const harness = createHarness({ blockCount: 6 });
  harness.run("a", fours(100, 2));
  harness.run("b", fours(200, 2));
  expect(harness.run("a again", fours(100, 2)).cachedTokens).toBe(8);
  harness.run("c", fours(300, 4));
  expect(evicted(harness)).toEqual([[204], [200], [104]]);
});

test("vLLM keeps several copies of one content and finds the oldest", () => {
  const harness = createHarness({ blockCount: 4 });
  // Prompts of exactly one block: the last token must be computed, so each run makes a copy of its own.
  for (const id of ["one", "two", "three"]) expect(harness.run(id, upFrom(100, 4)).cachedTokens).toBe(0);
  expect(harness.engine.stats().cachedBlocks).toBe(3);
  expect(harness.run("longer", upFrom(100, 6)).cachedTokens).toBe(4);
  harness.run("other", fours(200, 3));
  // One Removed per copy; three blocks hold copies and one held nothing.
  expect(evicted(harness)).toEqual([[100], [100], [100]]);
  expect(harness.run("again", upFrom(100, 6)).cachedTokens).toBe(0);
});

test("without prefix caching nothing is found, stored or evicted", () => {
  for (const flavour of ["vllm", "sglang"] as const) {
    const harness = createHarness({ flavour, prefixCaching: false });
    for (const id of ["a", "b", "c", "d", "e"]) expect(harness.run(id, fours(100, 5), 3).cachedTokens).toBe(0);
    expect(harness.engine.stats()).toMatchObject({ cachedBlocks: 0, freeBlocks: 16 });
    expect(harness.events().filter((event) => event.type !== "cleared")).toEqual([]);
  }
});

test("SGLang evicts whole nodes: the leaf not used for longest, and a parent once it has no child left", () => {
  const harness = createHarness({ flavour: "sglang", blockCount: 8, maxBatchedTokens: 64 });
  // Each run leaves a node of 2 pages. `b` splits nothing, `a long` hangs below `a`.
  harness.run("a", fours(100, 2));
  harness.run("b", fours(200, 2));
  harness.run("a long", [...upFrom(100, 8), ...fours(300, 2)]);
  expect(harness.engine.stats().cachedBlocks).toBe(6);
  // 2 pages and one that never fills, and one to spare: 4 pages are wanted, 2 are free. `b` is the oldest leaf.
  harness.run("c", fours(400, 2));
  expect(evicted(harness)).toEqual([[200, 204]]);
  // The leaf below `a`, then `a` itself, which `c` outlives: 4 pages and a half, one to spare.
  harness.run("d", fours(500, 4));
  expect(evicted(harness).slice(1)).toEqual([[300, 304, 100, 104]]);
});

test("SGLang splits a node where prompts part, and removes the parts by themselves", () => {
  const harness = createHarness({ flavour: "sglang", blockCount: 8, maxBatchedTokens: 64 });
  harness.run("long", fours(100, 4));
  // Shares two pages: the node of `long` is cut, the lower half is a leaf of its own.
  expect(harness.run("short", [...upFrom(100, 8), ...fours(200, 1)]).cachedTokens).toBe(8);
  harness.run("other", fours(300, 2));
  expect(evicted(harness)).toEqual([[108, 112]]);
  expect(harness.run("short again", [...upFrom(100, 8), ...fours(200, 1)]).cachedTokens).toBe(12);
});

test("SGLang keeps what a running request uses, however old", () => {
  const harness = createHarness({ flavour: "sglang", blockCount: 8, maxBatchedTokens: 64 });
  harness.run("shared", fours(100, 2));
  harness.run("newer", fours(200, 2));
  harness.submit("holder", fours(100, 2), 8);
  harness.engine.advanceTo(harness.nowMs());
  harness.submit("needy", fours(300, 2));
  harness.settle();
  expect(evicted(harness).flat()).not.toContain(100);
  expect(evicted(harness).flat()).toContain(204);
});

test("SGLang joins removals in a row, but not those of different adapters", () => {
  const removals = (adapter: string | undefined): readonly KvEvent[] => {
    const harness = createHarness({ flavour: "sglang", blockCount: 8, maxBatchedTokens: 64 });
    harness.run("a", fours(100, 2), 1, adapter === undefined ? {} : { adapter });
    harness.run("b", fours(200, 2), 1, { cacheSalt: "salt" });
    harness.run("c", fours(300, 6));
    return harness.events().filter((event) => event.type === "removed");
  };
  expect(removals(undefined)).toMatchObject([{ hashes: { length: 4 } }]);
  expect(removals("lora")).toMatchObject([{ hashes: { length: 2 } }, { hashes: { length: 2 } }]);
});

test("with single tokens as pages, SGLang finds all but the last token", () => {
  const harness = createHarness({ flavour: "sglang", blockSize: 1, blockCount: 64 });
  harness.run("a", upFrom(100, 10), 3);
  expect(harness.run("b", upFrom(100, 10), 3).cachedTokens).toBe(9);
  expect(harness.run("c", [...upFrom(100, 7), 5, 6], 1).cachedTokens).toBe(7);
});

test("salts and adapters never share", () => {
  for (const flavour of ["vllm", "sglang"] as const) {
    const harness = createHarness({ flavour, blockCount: 64, maxBatchedTokens: 64 });
    const prompt = fours(100, 3);
    const spaces = [
      {},
      { cacheSalt: "a" },
      { cacheSalt: "b" },
      { adapter: "a" },
      { adapter: "b" },
      { adapter: "a", cacheSalt: "a" },
    ];
    for (const [at, space] of spaces.entries()) {
      expect(harness.run(`first ${at}`, prompt, 1, space).cachedTokens).toBe(0);
    }
    for (const [at, space] of spaces.entries()) {
      expect(harness.run(`second ${at}`, prompt, 1, space).cachedTokens).toBe(12);
    }
  }
});

test("vLLM tells the salt with the first block of a chain, SGLang with every event; both name the adapter", () => {
  const saltsOf = (flavour: "vllm" | "sglang"): unknown[] => {
    const harness = createHarness({ flavour });
    harness.run("a", fours(100, 2), 5, { cacheSalt: "salt", adapter: "lora" });
    return harness.events().flatMap((event) => (event.type === "stored" ? [[event.cacheSalt, event.adapter]] : []));
  };
  expect(saltsOf("vllm")).toEqual([
    ["salt", "lora"],
    [undefined, "lora"],
  ]);
  expect(saltsOf("sglang")).toEqual([
    ["salt", "lora"],
    ["salt", "lora"],
  ]);
});
