import { createSeededRandom } from "@espalier/core";
import { type CandidateSet, createCandidateSet, createPolicy } from "@espalier/policies";
import { expect, test } from "vitest";
import {
  DecisionLog,
  keptCandidates,
  keptDecisions,
  keptExcluded,
  maxFoundDecisions,
  maxIdLength,
} from "../src/decision-log.ts";

const request = { promptTokens: 1_000, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined };
const random = createSeededRandom(1);
const leastWork = createPolicy("least_work");

/** Candidates with so many tokens to prefill. */
function candidatesOf(pending: readonly number[]): CandidateSet {
  const candidates = createCandidateSet();
  for (const [at, tokens] of pending.entries()) {
    candidates.add(`e-${at}`, at);
    candidates.pendingPrefillTokens[at] = tokens;
    candidates.matchedTokens[at] = 16 * at;
    if (at > 0) candidates.networkMs[at] = 37 * at;
  }
  return candidates;
}

function logOf(decisions: number): DecisionLog<string> {
  const facts: string[] = [];
  const write = (entry: number, fact: string): void => {
    facts[entry] = fact;
  };
  return new DecisionLog(decisions, { write, read: (entry) => facts[entry]! });
}

function decide(log: DecisionLog<string>, pending: readonly number[], policy = leastWork): number {
  const candidates = candidatesOf(pending);
  return log.add(candidates, policy.choose(request, candidates, random));
}

test("a decision is found by its request, the chosen candidate first and the others by their cost", () => {
  const log = logOf(4);
  log.name(decide(log, [5_000, 100, 2_000]), "id", "facts");
  const [found, ...others] = log.find("id");
  expect(others).toEqual([]);
  expect(found).toMatchObject({ facts: "facts", comparedCount: 3 });
  expect(found?.candidates.map(({ key, cost }) => [key, cost])).toEqual([
    ["e-1", 1_084],
    ["e-2", 2_968],
    ["e-0", 6_000],
  ]);
  expect(found?.candidates[0]).toEqual({
    ...{ key: "e-1", cost: 1_084, matchedTokens: 16, inFlight: 0, pendingPrefillTokens: 100, networkMs: 37 },
  });
  expect(found?.candidates[2]?.networkMs).toBeNull();
});

test("of one candidate more than is kept, the one with the highest cost is left out", () => {
  const log = logOf(4);
  const pending = Array.from({ length: keptCandidates + 1 }, (_, at) => (at === 3 ? 90_000 : 10_000 - 500 * at));
  log.name(decide(log, pending), "id", "facts");
  const [found] = log.find("id");
  expect(found?.comparedCount).toBe(keptCandidates + 1);
  expect(found?.candidates).toHaveLength(keptCandidates);
  expect(found?.candidates.map(({ key }) => key)).not.toContain("e-3");
  const costs = found?.candidates.map(({ cost }) => cost!) ?? [];
  expect(costs).toEqual(costs.toSorted((one, other) => one - other));
});

test("a policy without costs has none, nor does a choice of one", () => {
  const log = logOf(4);
  log.name(decide(log, [1, 2], createPolicy("random")), "drawn", "facts");
  log.name(decide(log, [1]), "only", "facts");
  expect(log.find("drawn")[0]?.candidates.map(({ cost }) => cost)).toEqual([null, null]);
  expect(log.find("only")[0]).toMatchObject({ comparedCount: 1, candidates: [{ key: "e-0", cost: null }] });
});

test("one decision more than is kept replaces the oldest, and the log goes on", () => {
  const log = logOf(keptDecisions);
  for (let at = 0; at <= keptDecisions; at++) log.name(decide(log, [at, 2 * at]), `id-${at}`, `facts-${at}`);
  expect(log.find("id-0")).toEqual([]);
  expect(log.find("id-1")[0]?.facts).toBe("facts-1");
  expect(log.find(`id-${keptDecisions}`)[0]?.facts).toBe(`facts-${keptDecisions}`);
  log.name(decide(log, [7, 9]), "next", "facts");
  expect([log.find("id-1"), log.find("next")[0]?.candidates[0]?.pendingPrefillTokens]).toEqual([[], 7]);
});

test("of more decisions about one id than are asked for, the latest are found", () => {
  const log = logOf(64);
  for (let at = 0; at <= maxFoundDecisions; at++) log.name(undefined, "id", `facts-${at}`);
  expect(log.find("id").map(({ facts }) => facts)).toEqual(
    Array.from({ length: maxFoundDecisions }, (_, at) => `facts-${at + 1}`),
  );
});

test("a decision that was replaced before its request was named names no other one", () => {
  const log = logOf(2);
  const late = decide(log, [1, 2]);
  const [second, third] = [decide(log, [1, 2]), decide(log, [1, 2])];
  log.name(second, "second", "facts");
  log.name(third, "third", "facts");
  log.name(late, "late", "facts");
  expect(log.find("late")).toEqual([]);
  expect(log.find("third")).toHaveLength(1);
});

test("an id is found by all of its characters, and not by those of another one that was there before", () => {
  const log = logOf(2);
  for (const id of ["request-17", "request", "request-1", "request-18"]) log.name(undefined, id, `facts of ${id}`);
  for (const id of ["request-17", "request", "request-19", "request-", ""]) expect(log.find(id)).toEqual([]);
  expect(log.find("request-1").map(({ facts }) => facts)).toEqual(["facts of request-1"]);
  expect(log.find("request-18").map(({ facts }) => facts)).toEqual(["facts of request-18"]);
});

test("a decision about an id one character longer than ids are is not kept, and the log goes on", () => {
  const log = logOf(4);
  log.name(decide(log, [1, 2]), "x".repeat(maxIdLength), "longest");
  log.name(decide(log, [1, 2]), "y".repeat(maxIdLength + 1), "too long");
  log.name(decide(log, [1, 2]), "next", "next");
  expect(log.find("y".repeat(maxIdLength + 1))).toEqual([]);
  expect(log.find("x".repeat(maxIdLength)).map(({ facts }) => facts)).toEqual(["longest"]);
  expect(log.find("next").map(({ facts }) => facts)).toEqual(["next"]);
});

test("targets that were left out are kept with their reasons, up to a bound, and counted beyond it", () => {
  const log = logOf(2);
  const candidates = candidatesOf([100, 200]);
  const excluded = Array.from({ length: keptExcluded + 1 }, (_, at) => ({ key: `x-${at}`, reason: "down" }));
  log.name(log.add(candidates, leastWork.choose(request, candidates, random), excluded), "id", "facts");
  expect(log.find("id")[0]).toMatchObject({
    excluded: excluded.slice(0, keptExcluded),
    excludedCount: keptExcluded + 1,
  });
  log.name(decide(log, [100]), "other", "facts");
  log.name(decide(log, [100]), "third", "facts");
  expect(log.find("third")[0]).toMatchObject({ excluded: [], excludedCount: 0 });
});
