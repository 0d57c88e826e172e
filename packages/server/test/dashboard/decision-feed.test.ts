import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  batchMs,
  createDecisionFeed,
  type DecisionBatch,
  type DescribedDecision,
  keptDecisions,
  maxAwaitedEnds,
  maxBatchDecisions,
  maxDecisionWatchers,
} from "../../src/decisions/decision-feed.ts";

const decision: DescribedDecision = {
  atMs: 0,
  ...{ endpoint: "chat", model: "m", policy: "least_work", reason: "least_work", target: "a" },
  ...{ promptTokens: 10, matchedTokens: 4, class: "default", queuedMs: 0, attempt: 1 },
  prefillEngine: null,
  pull: null,
};

function startFeed(seed = "fleet") {
  const { scheduler, advance } = createVirtualTime();
  const feed = createDecisionFeed({ scheduler, seed });
  const watch = () => {
    const batches: DecisionBatch[] = [];
    const cancel = feed.watch((batch) => batches.push(batch));
    return { batches, cancel: cancel ?? (() => {}), isRefused: cancel === undefined };
  };
  const note = (count: number, first = 0): void => {
    for (let at = 0; at < count; at++)
      feed.note({ ...decision, promptTokens: at }, { requestId: `r-${first + at}`, sessionKey: "s-1" });
  };
  return { feed, watch, note, advance };
}

const numbersOf = (batches: readonly DecisionBatch[]): readonly number[] =>
  batches.flatMap(({ decisions }) => decisions.map(({ number }) => number));

test("while nobody watches it says so, and keeps nothing", () => {
  const { feed, watch, note, advance } = startFeed();
  expect(feed.isWatched).toBe(false);
  const first = watch();
  expect(feed.isWatched).toBe(true);
  note(3);
  advance(batchMs);
  first.cancel();
  expect(feed.isWatched).toBe(false);
  expect(watch().batches).toEqual([{ decisions: [], ends: [], skipped: 0 }]);
});

test("all who watch are told in batches; who comes later begins with the latest", () => {
  const { watch, note, advance } = startFeed();
  const first = watch();
  note(2);
  expect(numbersOf(first.batches)).toEqual([]);
  advance(batchMs);
  expect(numbersOf(first.batches)).toEqual([1, 2]);
  const second = watch();
  expect(numbersOf(second.batches)).toEqual([1, 2]);
  note(1);
  advance(batchMs);
  expect([numbersOf(first.batches), numbersOf(second.batches)]).toEqual([
    [1, 2, 3],
    [1, 2, 3],
  ]);
  first.cancel();
  note(1);
  advance(batchMs);
  expect([numbersOf(first.batches).length, numbersOf(second.batches).length]).toEqual([3, 4]);
});

test("a request's end follows its decision; of those that were not told of, nothing is", () => {
  const { feed, watch, note, advance } = startFeed();
  const end = (requestId: string) => ({ requestId, outcome: "cut", status: 200, durationMs: 70, attempts: 1 }) as const;
  const { batches } = watch();
  note(maxAwaitedEnds + 1);
  for (const id of ["r-0", "r-1", "r-40", "r-1", "other"]) feed.ended(end(id));
  advance(batchMs);
  // Of a batch, 64 decisions were told of, so that none is forgotten.
  expect(batches.flatMap(({ ends }) => ends)).toEqual([end("r-0"), end("r-1"), end("r-40")]);
  expect(watch().batches[0]?.ends).toEqual([end("r-0"), end("r-1"), end("r-40")]);
  // Some more batches without an end: the one that has waited longest is forgotten, and others are not.
  for (let at = 0; at * maxBatchDecisions < maxAwaitedEnds; at++) {
    note(maxBatchDecisions, at * maxBatchDecisions + 1_000);
    advance(batchMs);
  }
  for (const id of ["r-2", "r-1000"]) feed.ended(end(id));
  advance(batchMs);
  expect(batches.at(-1)?.ends).toEqual([end("r-1000")]);
});

test("a decision says how many engines could not be chosen, the most frequent reason first", () => {
  const { feed, watch, advance } = startFeed();
  const { batches } = watch();
  const excluded = ["down", "saturated", "saturated"].map((reason, at) => ({ key: `e-${at}`, reason }));
  feed.note(decision, { requestId: "r", sessionKey: undefined, excluded });
  advance(batchMs);
  expect(batches.at(-1)?.decisions[0]?.excluded).toEqual([
    { reason: "saturated", count: 2 },
    { reason: "down", count: 1 },
  ]);
});

test("nothing is told while nothing is decided", () => {
  const { watch, advance } = startFeed();
  const { batches } = watch();
  advance(10 * batchMs);
  expect(batches).toHaveLength(1);
});

test("of more decisions than a batch holds the rest is counted", () => {
  const { watch, note, advance } = startFeed();
  const { batches } = watch();
  note(maxBatchDecisions + 1);
  advance(batchMs);
  expect(batches.at(-1)?.decisions).toHaveLength(maxBatchDecisions);
  expect(batches.at(-1)?.skipped).toBe(1);
  note(1);
  advance(batchMs);
  expect([batches.at(-1)?.skipped, batches.at(-1)?.decisions[0]?.number]).toEqual([0, maxBatchDecisions + 2]);
});

test("so many are kept, and not one more", () => {
  const { watch, note, advance } = startFeed();
  watch();
  for (let round = 0; round * maxBatchDecisions < keptDecisions + maxBatchDecisions; round++) {
    note(maxBatchDecisions);
    advance(batchMs);
  }
  const numbers = numbersOf(watch().batches);
  expect([numbers.length, numbers[0]]).toEqual([keptDecisions, maxBatchDecisions + 1]);
});

test("so many may watch, and not one more, until one goes", () => {
  const { watch } = startFeed();
  const all = Array.from({ length: maxDecisionWatchers }, watch);
  expect(all.every(({ isRefused }) => !isRefused)).toBe(true);
  expect(watch().isRefused).toBe(true);
  all[0]?.cancel();
  all[0]?.cancel();
  expect([watch().isRefused, watch().isRefused]).toEqual([false, true]);
});

test("a session has the same name in every router of the fleet, and its key is not told", () => {
  const names = (seed: string, ...keys: readonly (string | undefined)[]) => {
    const { feed, watch, advance } = startFeed(seed);
    const { batches } = watch();
    for (const sessionKey of keys) feed.note(decision, { requestId: "r", sessionKey });
    advance(batchMs);
    expect(JSON.stringify(batches)).not.toContain("alice");
    return batches.flatMap(({ decisions }) => decisions.map(({ session }) => session));
  };
  const [alice, bob, nobody, empty] = names("fleet", "alice", "bob", undefined, "");
  expect(alice).toMatch(/^[0-9a-f]{8}$/);
  expect([nobody, empty]).toEqual([null, null]);
  expect(bob).not.toBe(alice);
  expect(names("fleet", "alice")).toEqual([alice]);
  const { feed } = startFeed("fleet");
  const scoped = ["ada", "bob"].map((sessionScope) =>
    feed.sessionName(decision.model, { sessionKey: "alice", sessionScope }),
  );
  expect(new Set([alice, ...scoped]).size).toBe(3);
  expect(names("another fleet", "alice")).not.toEqual([alice]);
});
