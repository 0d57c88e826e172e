/** What a candidate lacks of a prompt is computed, or pulled from another candidate, whichever costs less. */
import { type CandidateSet, planPulls, pullSetupMs } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type CandidateRow, candidatesOf } from "./helpers.ts";

const promptTokens = 16_384;

/** An engine that computes 10 tokens a millisecond, pulls 100, and has none of the prompt. */
const idle = { pullProtocol: 1, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0, pullMsPerToken: 0.01 };

function planned(rows: readonly Omit<CandidateRow, "key">[], busyShare = 0): CandidateSet {
  const candidates = candidatesOf(rows.map((row, index) => ({ key: `e${index}`, ...idle, ...row })));
  planPulls(promptTokens, busyShare, candidates);
  return candidates;
}

const pullOf = (candidates: CandidateSet, index: number): readonly number[] => [
  candidates.pulledTokens[index]!,
  candidates.pullMs[index]!,
  candidates.pullFrom[index]!,
];
const noPull = [0, 0, Number.NaN];

test("what another candidate lends is pulled, and only what the candidate lacks", () => {
  const candidates = planned([{ matchedTokens: 4_000, lendableTokens: 16_000 }, {}, { matchedTokens: 12_000 }]);
  expect(pullOf(candidates, 0)).toEqual(noPull);
  expect(pullOf(candidates, 1)).toEqual([16_000, pullSetupMs + 160, 0]);
  expect(pullOf(candidates, 2)).toEqual([4_000, pullSetupMs + 40, 0]);
});

test("candidates without a protocol, or with another one, pull nothing", () => {
  const candidates = planned([{ lendableTokens: 16_000 }, { pullProtocol: 0 }, { pullProtocol: 2 }, {}]);
  expect([1, 2, 3].map((index) => candidates.pulledTokens[index])).toEqual([0, 0, 16_000]);
});

test("where blocks are only predicted, their source is named, and nothing is expected to be pulled", () => {
  const sent = { matchedTokens: 16_000, matchAgeMs: 5 };
  expect(pullOf(planned([{ lendableTokens: 16_000 }, sent]), 1)).toEqual([0, 0, 0]);
  expect(pullOf(planned([{ lendableTokens: 16_000 }, { matchedTokens: 16_000 }]), 1)).toEqual(noPull);
  expect(pullOf(planned([{ lendableTokens: 16_000, pullProtocol: 2 }, sent]), 1)).toEqual(noPull);
});

test("a few tokens are computed sooner than they arrive", () => {
  expect(pullOf(planned([{ lendableTokens: 80 }, {}]), 1)).toEqual(noPull);
  expect(pullOf(planned([{ lendableTokens: 160 }, {}]), 1)[0]).toBe(160);
});

test("a source that sends a lot is left for one that sends less, and in the end for computing", () => {
  const lender = { lendableTokens: 16_000 };
  expect(pullOf(planned([{ ...lender, lendingTokens: 40_000 }, lender, {}]), 2)[2]).toBe(1);
  const busy = { ...lender, lendingTokens: 200_000 };
  expect(pullOf(planned([busy, busy, {}]), 2)).toEqual(noPull);
  // Where computing holds up others, even a slow pull is better.
  expect(pullOf(planned([busy, busy, {}], 0.9), 2)[0]).toBe(16_000);
});

test("a source that failed is trusted less, and pulls from it are expected to end in computing", () => {
  const [, ms] = pullOf(planned([{ lendableTokens: 16_000, lendTrust: 0.5 }, {}]), 1);
  expect(ms).toBeCloseTo(pullSetupMs + 160 + 0.5 * 1_600);
  expect(pullOf(planned([{ lendableTokens: 16_000, lendTrust: 0.1 }, {}]), 1)).toEqual(noPull);
});

describe("beside all sources", () => {
  const row = fc.record({
    matchedTokens: fc.constantFrom(0, 1_600, 8_000),
    lendableTokens: fc.constantFrom(0, 1_600, 8_000, 16_000),
    lendingTokens: fc.constantFrom(0, 10_000, 100_000),
    lendTrust: fc.constantFrom(0, 0.5, 1),
    pullProtocol: fc.constantFrom(0, 1, 2),
    prefillMsPerToken: fc.constantFrom(0.02, 0.1),
    prefillMsPerTokenPair: fc.constantFrom(0, 1e-5),
    pullMsPerToken: fc.constantFrom(0.005, 0.02, Number.NaN),
  });

  test("the pull of each candidate is the best that there is", () => {
    fc.assert(
      fc.property(fc.array(row, { minLength: 1, maxLength: 4 }), (rows) => {
        const candidates = planned(rows);
        const computeMs = (at: (typeof rows)[number], tokens: number): number => {
          const left = promptTokens - tokens;
          return at.prefillMsPerToken * left + at.prefillMsPerTokenPair * left * (tokens + left / 2);
        };
        for (const [index, one] of rows.entries()) {
          const costs = rows.map((source, from) => {
            const tokens = source.lendableTokens - one.matchedTokens;
            const isPossible = from !== index && tokens > 0 && one.pullProtocol > 0;
            if (!isPossible || source.pullProtocol !== one.pullProtocol) return Number.POSITIVE_INFINITY;
            const saved = computeMs(one, one.matchedTokens) - computeMs(one, source.lendableTokens);
            const rate = Number.isNaN(one.pullMsPerToken) ? one.prefillMsPerToken / 4 : one.pullMsPerToken;
            return pullSetupMs + rate * (source.lendingTokens + tokens) - source.lendTrust * saved;
          });
          const best = Math.min(...costs);
          const from = candidates.pullFrom[index]!;
          if (best < 0) expect(costs[from]).toBeCloseTo(best, 6);
          else expect(pullOf(candidates, index)).toEqual(noPull);
        }
      }),
      { numRuns: randomRuns(300) },
    );
  });
});
