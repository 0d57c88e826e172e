import { createSeededRandom } from "@espalier/core";
import { type CandidateSet, createCandidateSet, createPolicy, type RequestFeatures } from "@espalier/policies";
import { expect, test } from "vitest";
import { type LlmdRule, withLlmdRule } from "../../src/fleet/llm-d-pulls.ts";

interface Row {
  readonly inFlight?: number;
  readonly waiting?: number;
  readonly matchedTokens?: number;
  /** Of a prediction that they are there. */
  readonly matchAgeMs?: number;
  readonly lendableTokens?: number;
}

const request: RequestFeatures = {
  ...{ promptTokens: 20_000, expectedOutputTokens: 100, sessionKey: undefined, prefixKey: undefined },
};

function setOf(rows: readonly Row[]): CandidateSet {
  const set = createCandidateSet(rows.length);
  for (const [position, row] of rows.entries()) {
    const index = set.add(`e${position}`, position);
    set.signalAgeMs[index] = 0;
    set.waiting[index] = row.waiting ?? 0;
    set.inFlight[index] = row.inFlight ?? 0;
    set.matchedTokens[index] = row.matchedTokens ?? 0;
    set.matchAgeMs[index] = row.matchAgeMs ?? Number.NaN;
    set.lendableTokens[index] = row.lendableTokens ?? 0;
    // What a decision by cost would have left.
    set.pulledTokens[index] = 1;
  }
  return set;
}

/** How often each engine is chosen, and each is pulled from, in 4,000 decisions of one that goes by requests in flight. */
function tally(rows: readonly Row[], rule: LlmdRule) {
  const none = { "queue-weight": 0, "kv-cache-utilization-weight": 0, "prefix-cache-weight": 0 };
  const policy = withLlmdRule(createPolicy("epp_weighted", { ...none, "active-request-weight": 1 }), rule);
  const random = createSeededRandom(5);
  const chosen = rows.map(() => 0);
  const pulledFrom = rows.map(() => 0);
  const tokens = new Set<number>();
  for (let draw = 0; draw < 4_000; draw++) {
    const set = setOf(rows);
    const { index } = policy.choose(request, set, random);
    chosen[index]!++;
    tokens.add(set.pulledTokens[index]!);
    if (set.pulledTokens[index]! > 0) pulledFrom[set.pullFrom[index]!]!++;
  }
  return { chosen, pulledFrom, tokens: [...tokens] };
}

const holder = { lendableTokens: 16_384, inFlight: 9 };

test("the best engine pulls what it lacks from an engine whose CPU memory has enough more", () => {
  const rows = [holder, { matchedTokens: 4_096 }];
  expect(tally(rows, { minPullTokens: 2_048 })).toEqual({
    chosen: [0, 4_000],
    pulledFrom: [4_000, 0],
    tokens: [12_288],
  });
  expect(tally(rows, { minPullTokens: 12_288 }).tokens).toEqual([12_288]);
  expect(tally(rows, { minPullTokens: 12_289 }).tokens).toEqual([0]);
  // It does not predict what earlier requests bring.
  const sent = [holder, { matchedTokens: 16_384, matchAgeMs: 5 }];
  expect(tally(sent, { minPullTokens: 2_048 }).tokens).toEqual([16_384]);
});

test("without the rule nothing is pulled, and an engine pulls nothing from itself", () => {
  expect(tally([holder, {}], {}).tokens).toEqual([0]);
  expect(tally([{ lendableTokens: 16_384 }, { inFlight: 9 }], { minPullTokens: 1 }).tokens).toEqual([0]);
  expect(tally([{ inFlight: 9 }, {}], { minPullTokens: 1 }).tokens).toEqual([0]);
});

test("sources within a block of the longest are drawn by their queues, and others not at all", () => {
  const rows = [holder, { ...holder, lendableTokens: 16_320, waiting: 3 }, { ...holder, lendableTokens: 16_304 }, {}];
  const [first, second, third] = tally(rows, { minPullTokens: 1 }).pulledFrom;
  expect(third).toBe(0);
  expect(first! / second!).toBeGreaterThan(3.5);
  expect(first! / second!).toBeLessThan(4.5);
});

test("engines are drawn by their scores; all alike when there are none", () => {
  // Scores of 1, one half and 0.
  const { chosen } = tally([{}, { inFlight: 5 }, { inFlight: 10 }], { draws: true });
  expect(chosen[2]).toBe(0);
  expect(chosen[0]! / chosen[1]!).toBeGreaterThan(1.8);
  expect(chosen[0]! / chosen[1]!).toBeLessThan(2.2);
  const equal = tally([{ inFlight: 4 }, { inFlight: 4 }], { draws: true }).chosen;
  expect(equal[0]! / equal[1]!).toBeGreaterThan(0.9);
  expect(equal[0]! / equal[1]!).toBeLessThan(1.1);
});
