import { createSeededRandom, type Random } from "@espalier/core";
import type { KvEvent } from "@espalier/engine-model";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createHarness, smallEngine } from "./harness.ts";

const window = { blockCount: 64, windowTokens: 9, maxModelLength: 128, maxBatchedTokens: 64 };
const prompt = (length: number, seed = 0): number[] => Array.from({ length }, (_, at) => 1_000 * seed + at);

describe("a hybrid model keeps windows and states where prompts end, and where two part", () => {
  test.each([
    ["a window of three blocks", window],
    ["two groups of states", { ...window, windowTokens: 0, stateGroups: 2 }],
    ["both", { ...window, stateGroups: 1 }],
  ])("%s", (_name, parameters) => {
    const { run } = createHarness(parameters);
    expect(run("first", prompt(41)).cachedTokens).toBe(0);
    expect(run("again", prompt(41)).cachedTokens).toBe(40);
    expect(run("longer", [...prompt(41), ...prompt(10, 1)]).cachedTokens).toBe(40);
    // Full attention has 20 tokens, but no window or state ends there, until a second prompt has left the first one there.
    const branch = (seed: number): number[] => [...prompt(20), ...prompt(20, seed)];
    expect(run("second", branch(2)).cachedTokens).toBe(0);
    expect(run("third", branch(3)).cachedTokens).toBe(20);
  });

  test("densely kept, every block is an end", () => {
    const { run } = createHarness({ ...window, retention: "dense" });
    run("first", prompt(41));
    expect(run("second", [...prompt(20), ...prompt(20, 2)]).cachedTokens).toBe(20);
  });

  test("a prompt of whole blocks resumes before its last one", () => {
    const { run } = createHarness(window);
    run("first", prompt(40));
    expect(run("again", prompt(40)).cachedTokens).toBe(36);
    expect(run("longer", prompt(45)).cachedTokens).toBe(36);
  });
});

test("events name groups, and windows give fewer hashes than their tokens fill", () => {
  const { run, events } = createHarness({ ...window, stateGroups: 1 });
  run("first", prompt(41));
  const stored = events().filter((event) => event.type === "stored");
  const shape = ({ group, specKind, slidingWindow, hashes, tokens }: (typeof stored)[number]) => ({
    ...{ group, specKind, slidingWindow, hashes: hashes.length, tokens: tokens.length },
  });
  expect(stored.map(shape)).toEqual([
    { group: 0, specKind: "sliding_window", slidingWindow: 9, hashes: 2, tokens: 40 },
    { group: 1, specKind: "mamba", slidingWindow: undefined, hashes: 1, tokens: 40 },
    { group: 2, specKind: "full_attention", slidingWindow: undefined, hashes: 10, tokens: 40 },
  ]);
  const full = stored[2]!.hashes;
  expect(stored[0]!.hashes).toEqual(full.slice(8));
  expect(stored[1]!.hashes).toEqual(full.slice(9));
});

test("no block is lost or used twice, whatever comes", () => {
  for (const seed of fixedSeeds(20, 1)) {
    const random = createSeededRandom(seed);
    const { engine, submit, idle, settle, events } = createHarness({
      ...{ blockCount: 60, maxModelLength: 96, maxBatchedTokens: 16, maxRunning: 3 },
      ...{ windowTokens: random.integer(2) * 9, stateGroups: 1 + random.integer(2) },
      retention: random.integer(2) === 0 ? "replay" : "dense",
    });
    for (let request = 0; request < 40; request++) {
      submit(`r${request}`, randomPrompt(random), 1 + random.integer(12));
      idle(random.integer(6));
    }
    settle();
    expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, finished: 40, freeBlocks: 60 });
    expect(copiesAfter(events())).toBe(engine.stats().cachedBlocks);
    expect(engine.resetPrefixCache(1e9)).toBe(true);
    expect(engine.stats().cachedBlocks).toBe(0);
  }
});

function randomPrompt(random: Random): number[] {
  const shared = random.integer(8) * 4;
  return [...prompt(shared, random.integer(2)), ...prompt(1 + random.integer(24), 10 + random.integer(3))];
}

/** Copies of blocks that events leave behind, of all groups. */
function copiesAfter(events: readonly KvEvent[]): number {
  let copies = 0;
  for (const event of events) {
    if (event.type === "stored") copies += event.hashes.length;
    else if (event.type === "removed") copies -= event.hashes.length;
  }
  return copies;
}

test.each([
  [{ windowTokens: -1 }, "windowTokens -1 is not a whole number"],
  [{ stateGroups: 32 }, "stateGroups 32 is not a whole number from 0 to 31"],
  [{ windowTokens: 8, cpuBlocks: 4 }, "only vLLM's flavour without CPU memory has windowTokens and stateGroups"],
  [
    { stateGroups: 1, flavour: "sglang" as const },
    "only vLLM's flavour without CPU memory has windowTokens and stateGroups",
  ],
])("%o is refused", (parameters, message) => {
  expect(() => createHarness({ ...smallEngine, ...parameters })).toThrow(message);
});
