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

test("without prefix caching nothing is found, stored or evicted", () => {
  for (const flavour of ["vllm", "sglang"] as const) {
    const harness = createHarness({ flavour, prefixCaching: false });
    for (const id of ["a", "b", "c", "d", "e"]) expect(harness.run(id, fours(100, 5), 3).cachedTokens).toBe(0);
    expect(harness.engine.stats()).toMatchObject({ cachedBlocks: 0, freeBlocks: 16 });
    expect(harness.events().filter((event) => event.type !== "cleared")).toEqual([]);
  }
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
