import { createPolicy } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(10_000);

function explain(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}, request = prompt) {
  return createPolicy("affinity_filter", options).explain(request, candidatesOf(rows));
}
const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
const times = (...args: Parameters<typeof explain>) =>
  explain(...args).candidates.map(({ terms }) => terms.first_token_ms);

describe("who holds the prompt", () => {
  test("from four fifths on, and the one of those with the fewest tokens takes it, however idle the others are", () => {
    const rows: CandidateRow[] = [
      { key: "all", matchedTokens: 10_000, decodeTokens: 60_000 },
      { key: "enough", matchedTokens: 8_000, decodeTokens: 50_000 },
      { key: "too little", matchedTokens: 7_999 },
      { key: "idle" },
    ];
    expect(shares(rows)).toEqual({ all: 0, enough: 1, "too little": 0, idle: 0 });
    expect(explain(rows).reason).toBe("affinity");
  });

  test("without any, the fewest tokens of all", () => {
    const rows: CandidateRow[] = [{ key: "some", matchedTokens: 5_000, pendingPrefillTokens: 10 }, { key: "idle" }];
    expect(shares(rows)).toEqual({ some: 0, idle: 1 });
    expect(explain(rows).reason).toBe("least_load");
    expect(explain(rows, {}, ofTokens(0)).reason).toBe("least_load");
  });

  test("the threshold is an option, and slower tiers count at their credit", () => {
    const rows: CandidateRow[] = [
      { key: "cpu", matchedTokens: 5_000, matchedCpuTokens: 4_000, decodeTokens: 9 },
      { key: "idle" },
    ];
    expect(shares(rows)).toEqual({ cpu: 1, idle: 0 });
    expect(shares(rows, { "cpu-credit": 0.74 })).toEqual({ cpu: 0, idle: 1 });
    expect(shares(rows, { "cpu-credit": 0, "affinity-threshold": 0.5 })).toEqual({ cpu: 1, idle: 0 });
    // Everybody holds nothing of it: then there is nobody else to compare with.
    expect(explain(rows, { "affinity-threshold": 0 }).reason).toBe("affinity");
    expect(shares(rows, { "affinity-threshold": 0 })).toEqual({ cpu: 0, idle: 1 });
  });

  test("equals are drawn by weight", () => {
    const rows: CandidateRow[] = [
      { key: "light", matchedTokens: 10_000, decodeTokens: 0 },
      { key: "heavy", matchedTokens: 10_000, weight: 3, decodeTokens: 20_200 },
      { key: "idle" },
    ];
    const { byKey: drawn, reasons } = tally(createPolicy("affinity_filter"), rows, 4_000, prompt);
    expect(drawn.idle).toBe(0);
    expect(chiSquareExcess([drawn.light!, drawn.heavy!], [1_000, 3_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["affinity"]);
  });
});

describe("the time to the first token", () => {
  test("is the backlog and the uncached part at the learned rate, plus what others have in the queue", () => {
    const fresh = { signalAgeMs: 100, running: 0, inFlightAtSignal: 0 };
    const rows: CandidateRow[] = [
      { key: "learned", backlogMs: 300, prefillMsPerToken: 0.1, pendingPrefillTokens: 9_999, matchedTokens: 4_000 },
      { key: "foreign", backlogMs: 0, prefillMsPerToken: 0.1, waiting: 2, ...fresh },
      { key: "rate alone", prefillMsPerToken: 0.2, pendingPrefillTokens: 1_000, waiting: 0, ...fresh },
      { key: "backlog alone", backlogMs: 50, pendingPrefillTokens: 1_000, waiting: 0, ...fresh },
      { key: "nothing", pendingPrefillTokens: 1_000, waiting: 0, ...fresh },
    ];
    // Of the first it is not known what others queue there: the mean of the four that report is half a request.
    const options = { "foreign-request-tokens": 1_000, "prefill-tokens-per-second": 20_000 };
    const expected = [300 + 650, 1_200, 200 + 2_000, 50 + 500, 50 + 500];
    for (const [i, time] of times(rows, options).entries()) expect(time).toBeCloseTo(expected[i]!, 9);
  });

  test("an engine of weight 2 is taken to be twice as fast until its rate is learned", () => {
    const rows: CandidateRow[] = [
      { key: "fast", weight: 2, pendingPrefillTokens: 10_000 },
      { key: "fast, learned", weight: 2, pendingPrefillTokens: 10_000, prefillMsPerToken: 0.05 },
    ];
    const [assumed, learned] = times(rows, { "prefill-tokens-per-second": 10_000 });
    expect(assumed).toBeCloseTo(1_000, 9);
    expect(learned).toBeCloseTo(1_000, 9);
  });
});

describe("the bound on the penalty", () => {
  const at = (backlogMs: number): CandidateRow[] => [
    { key: "busy holder", matchedTokens: 10_000, prefillMsPerToken: 0.1, backlogMs: backlogMs + 90_000 },
    { key: "holder", matchedTokens: 9_000, prefillMsPerToken: 0.1, backlogMs, pendingPrefillTokens: 90_000 },
    { key: "idle", prefillMsPerToken: 0.1, backlogMs: 0 },
  ];

  test("is 18 seconds between the best that hold it and the best other", () => {
    // The idle one computes 10,000 tokens in a second, the holder 1,000 in a tenth of one.
    expect(explain(at(18_900)).reason).toBe("affinity");
    expect(shares(at(18_900))).toEqual({ "busy holder": 1, holder: 0, idle: 0 });
    expect(explain(at(18_901)).reason).toBe("affinity_too_slow");
    // Then the tokens of all are compared: the busy holder has none that are known.
    expect(shares(at(18_901))).toEqual({ "busy holder": 0.5, holder: 0, idle: 0.5 });
  });

  test("is an option, and 0 removes it", () => {
    expect(explain(at(902), { "max-ttft-penalty-ms": 1 }).reason).toBe("affinity_too_slow");
    expect(explain(at(901), { "max-ttft-penalty-ms": 1 }).reason).toBe("affinity");
    expect(explain(at(1e9), { "max-ttft-penalty-ms": 0 }).reason).toBe("affinity");
  });

  test("the rate that is assumed of unknown engines decides when it is passed", () => {
    const rows: CandidateRow[] = [
      { key: "holder", matchedTokens: 10_000, pendingPrefillTokens: 400_000 },
      { key: "idle" },
    ];
    // 390,001 tokens more than the other has before it.
    expect(shares(rows)).toEqual({ holder: 0, idle: 1 });
    expect(shares(rows, { "prefill-tokens-per-second": 390_001 / 18 })).toEqual({ holder: 1, idle: 0 });
    expect(shares(rows, { "prefill-tokens-per-second": 390_000 / 18 })).toEqual({ holder: 0, idle: 1 });
  });
});

test("decides as the rule written down plainly does", () => {
  const values = fc.array(
    fc.record({
      decodeTokens: fc.integer({ min: 0, max: 4 }).map((n) => n * 1_000),
      pendingPrefillTokens: fc.integer({ min: 0, max: 40 }).map((n) => n * 250),
      matchedTokens: fc.constantFrom(0, 4_000, 7_900, 8_000, 9_984, 10_000),
      backlogMs: fc.constantFrom(Number.NaN, 0, 250, 1_000),
      prefillMsPerToken: fc.constantFrom(Number.NaN, 0.125, 0.5),
    }),
    { minLength: 2, maxLength: 7 },
  );
  fc.assert(
    fc.property(values, fc.constantFrom(0, 100, 1_000), (rows, maxPenaltyMs) => {
      const all = rows.map((_, i) => i);
      const timeOf = (i: number): number => {
        const row = rows[i]!;
        const tokenMs = Number.isNaN(row.prefillMsPerToken) ? 0.25 : row.prefillMsPerToken;
        const pendingMs = Number.isNaN(row.backlogMs) ? row.pendingPrefillTokens * tokenMs : row.backlogMs;
        return pendingMs + Math.max(1, 10_000 - row.matchedTokens) * tokenMs;
      };
      const holders = all.filter((i) => rows[i]!.matchedTokens >= 8_000);
      const others = all.filter((i) => !holders.includes(i));
      const best = (indices: readonly number[]): number => Math.min(...indices.map(timeOf));
      const isTooLate = maxPenaltyMs > 0 && others.length > 0 && best(holders) - best(others) > maxPenaltyMs;
      const left = holders.length > 0 && !isTooLate ? holders : all;
      const tokens = (i: number): number => rows[i]!.decodeTokens + rows[i]!.pendingPrefillTokens;
      const chosen = left.filter((i) => tokens(i) === Math.min(...left.map(tokens)));
      const named = rows.map((row, i) => ({ key: `e${i}`, ...row }));
      const options = { "max-ttft-penalty-ms": maxPenaltyMs, "prefill-tokens-per-second": 4_000 };
      for (const [i, one] of explain(named, options).candidates.entries()) {
        expect(one.probability).toBeCloseTo(chosen.includes(i) ? 1 / chosen.length : 0, 9);
      }
    }),
    { numRuns: 500 },
  );
});
