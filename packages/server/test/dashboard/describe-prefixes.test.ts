import { asTargetIndex } from "@espalier/core";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import { maxKnownTargets, type PromptBlocks } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  createPrefixReporter,
  maxListedHolders,
  maxListedPrefixes,
  prefixReportAgeMs,
} from "../../src/admin/prefix-report.ts";
import { countedMs, createPrefixUse, maxCountedPrefixes, maxPrefixUsers } from "../../src/admin/prefix-use.ts";
import { chainOf } from "../mesh/mesh-rig.ts";

function start() {
  const { clock, scheduler: _, advance } = createVirtualTime();
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 100_000, maxSets: 1_000 });
  const use = createPrefixUse(clock);
  const report = createPrefixReporter({
    ...{ index, blockSize: 16, use, clock },
    keyOf: (target) => (target < 200 ? `engine-${target}` : undefined),
  });
  const place = (target: number, words: Uint32Array): void => {
    index.placements.setCapacity(asTargetIndex(target), 10_000);
    index.place(target, words, words.length / 2, { nowMs: clock.nowMs(), ttlMs: 600_000 });
  };
  const hold = (target: number, words: Uint32Array): void => {
    index.storeFacts(target, tier.gpu, words, 0, words.length / 2);
  };
  const ask = (words: Uint32Array, model = "m", className: string | null = "batch", session: string | null = null) =>
    use.note({ chain: words, blockCount: words.length / 2 } as PromptBlocks, { model, class: className, session });
  return { report, place, hold, advance, use, ask };
}

const hashOf = (words: Uint32Array): string =>
  [...words.slice(-2)].map((word) => word.toString(16).padStart(8, "0")).join("");
const join = (...parts: readonly Uint32Array[]): Uint32Array => Uint32Array.from(parts.flatMap((part) => [...part]));

test("who holds a prefix, and how that is known", () => {
  const { report, place, hold } = start();
  const words = chainOf(1, 20);
  place(1, words);
  place(2, words);
  hold(2, words);
  hold(3, words);
  hold(4, words.slice(0, 30));
  expect(report()).toEqual({
    blockSize: 16,
    prefixes: [
      {
        ...{ hash: hashOf(words), blocks: 20, parent: null, continuations: 0, holderCount: 3 },
        users: { sinceMs: expect.any(Number), requests: 0, by: [], sessions: [] },
        holders: [
          { target: "engine-1", isReported: false, isPredicted: true },
          { target: "engine-2", isReported: true, isPredicted: true },
          { target: "engine-3", isReported: true, isPredicted: false },
        ],
      },
    ],
  });
});

test("a prefix stands below the one that it continues", () => {
  const { report, place } = start();
  const [system, tools] = [chainOf(1, 10), chainOf(2, 30)];
  for (const target of [1, 2]) place(target, join(system, tools, chainOf(10 + target, 2)));
  for (const target of [1, 2, 3]) place(target, join(system, chainOf(20 + target, 2)));
  const { prefixes } = report();
  expect(prefixes.map(({ blocks, parent }) => [blocks, parent])).toEqual([
    [40, 1],
    [10, null],
  ]);
});

test("below a prefix only what continues it is told, that prefix first, also what is too small for the whole list", () => {
  const { report, place } = start();
  const [system, tools] = [chainOf(1, 10), chainOf(2, 30)];
  for (const target of [1, 2]) place(target, join(system, tools, chainOf(10 + target, 2)));
  for (const target of [3, 4]) place(target, join(system, chainOf(5, 1), chainOf(20 + target, 2)));
  for (const target of [1, 2]) for (let at = 0; at < maxListedPrefixes; at++) place(target, chainOf(100 + at, 60));
  expect(report().prefixes.every(({ blocks }) => blocks === 60)).toBe(true);
  expect(
    report(hashOf(system)).prefixes.map(({ blocks, parent, holderCount }) => [blocks, parent, holderCount]),
  ).toEqual([
    [10, null, 4],
    [40, 0, 2],
    [11, 0, 2],
  ]);
  expect(report(hashOf(join(system, tools))).prefixes.map(({ blocks }) => blocks)).toEqual([40]);
  expect(report(hashOf(chainOf(9, 9))).prefixes).toEqual([]);
  for (const strange of ["", "xyz", `${hashOf(system)}0`]) expect(() => report(strange)).toThrow("range");
});

test("it is looked for again once it is old enough", () => {
  const { report, place, advance } = start();
  expect(report().prefixes).toEqual([]);
  for (const target of [1, 2]) place(target, chainOf(1, 5));
  expect(report().prefixes).toEqual([]);
  advance(prefixReportAgeMs);
  expect(report().prefixes).toHaveLength(1);
});

test("so many prefixes and holders are listed, and not one more", () => {
  const { report, place, hold } = start();
  const shared = chainOf(1, 200);
  for (const target of [1, 2]) place(target, shared);
  for (let target = 1; target <= maxListedHolders + 1; target++) hold(target, shared);
  for (let seed = 0; seed < maxListedPrefixes; seed++)
    for (const target of [1, 2]) place(target, chainOf(100 + seed, 5));
  const { prefixes } = report();
  expect(prefixes).toHaveLength(maxListedPrefixes);
  expect([prefixes[0]?.holders.length, prefixes[0]?.holderCount]).toEqual([maxListedHolders, maxListedHolders + 1]);
});

test("targets that have no name any more are left out", () => {
  const { report, place } = start();
  const words = chainOf(1, 5);
  place(1, words);
  place(300, words);
  expect(report().prefixes[0]?.holders.map(({ target }) => target)).toEqual(["engine-1"]);
});

test("who asks for a prefix, by model and class, and in which sessions; others are not counted", () => {
  const { report, place, ask, use, advance } = start();
  const [system, question] = [chainOf(1, 20), chainOf(2, 5)];
  for (const target of [1, 2]) place(target, system);
  expect(use.isWatched).toBe(false);
  report();
  expect(use.isWatched).toBe(true);
  ask(join(system, question), "m", "interactive", "s1");
  ask(system, "m", "interactive", "s2");
  ask(system, "m", null);
  ask(join(question, system));
  ask(system.slice(0, 38));
  advance(prefixReportAgeMs);
  const { users } = report().prefixes[0]!;
  expect(users).toMatchObject({ requests: 3, sessions: ["s1", "s2"] });
  expect(users.by).toEqual([
    { model: "m", class: "interactive", requests: 2 },
    { model: "m", class: null, requests: 1 },
  ]);
});

test("one user, one session and one prefix too many", () => {
  const { use, ask } = start();
  const words = chainOf(1, 4);
  use.listed(words.slice(-2), 4);
  for (let at = 0; at <= maxPrefixUsers; at++) ask(words, `m${at}`, null, `s${at}`);
  const { requests, by, sessions } = use.listed(words.slice(-2), 4);
  expect(requests).toBe(maxPrefixUsers + 1);
  expect([by.length, by.at(-1)!.model]).toEqual([maxPrefixUsers, `m${maxPrefixUsers - 1}`]);
  expect([sessions.length, sessions[0], sessions.at(-1)]).toEqual([maxPrefixUsers, "s1", `s${maxPrefixUsers}`]);

  for (let at = 1; at < maxCountedPrefixes; at++) use.listed(Uint32Array.of(at, 0), 1);
  const late = chainOf(9, 1);
  for (const known of [0, 0]) {
    ask(late);
    expect(use.listed(late, 1).requests).toBe(known);
  }
  ask(words);
  expect(use.listed(words.slice(-2), 4).requests).toBe(maxPrefixUsers + 2);
});

test("a prefix that nobody lists any more is not counted any more", () => {
  const { use, ask, advance } = start();
  const words = chainOf(1, 4);
  use.listed(words.slice(-2), 4);
  advance(countedMs + 1);
  ask(words);
  expect(use.isWatched).toBe(false);
  expect(use.listed(words.slice(-2), 4).requests).toBe(0);
});
