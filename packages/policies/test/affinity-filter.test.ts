import { createPolicy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(10_000);

function explain(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}, request = prompt) {
  return createPolicy("affinity_filter", options).explain(request, candidatesOf(rows));
}
const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
const times = (...args: Parameters<typeof explain>) =>
  explain(...args).candidates.map(({ terms }) => terms.queued_prefill_ms);

describe("who holds the prompt", () => {
  test("from four fifths on, and the one of those with the least prefill takes it, however idle the others are", () => {
    const rows: CandidateRow[] = [
      { key: "all", matchedTokens: 10_000, pendingPrefillTokens: 60_000 },
      { key: "enough", matchedTokens: 8_000, pendingPrefillTokens: 50_000 },
      { key: "too little", matchedTokens: 7_999 },
      { key: "idle" },
    ];
    expect(shares(rows)).toEqual({ all: 0, enough: 1, "too little": 0, idle: 0 });
    expect(explain(rows).reason).toBe("affinity");
  });

  test("without any, the least prefill of all, that of the prompt in hand counted in", () => {
    const rows: CandidateRow[] = [{ key: "some", matchedTokens: 5_000, pendingPrefillTokens: 5_001 }, { key: "idle" }];
    expect(shares(rows)).toEqual({ some: 0, idle: 1 });
    expect(shares([{ ...rows[0]!, pendingPrefillTokens: 4_999 }, rows[1]!])).toEqual({ some: 1, idle: 0 });
    expect(explain(rows).reason).toBe("least_load");
    expect(explain(rows, {}, ofTokens(0)).reason).toBe("least_load");
  });

  test("the threshold is an option, and slower tiers count at their credit", () => {
    const rows: CandidateRow[] = [
      { key: "cpu", matchedTokens: 5_000, matchedCpuTokens: 4_000, pendingPrefillTokens: 9_000 },
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
      { key: "light", matchedTokens: 10_000, pendingPrefillTokens: 0 },
      { key: "heavy", matchedTokens: 10_000, weight: 3, pendingPrefillTokens: 2 },
      { key: "idle" },
    ];
    const { byKey: drawn, reasons } = tally(createPolicy("affinity_filter"), rows, 4_000, prompt);
    expect(drawn.idle).toBe(0);
    expect(chiSquareExcess([drawn.light!, drawn.heavy!], [1_000, 3_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["affinity"]);
  });
});

describe("load", () => {
  // llm-d/llm-d-router@ebab6879, pkg/epp/framework/plugins/scheduling/scorer/tokenload/token_load_test.go: 0, 250 and 750 tokens in
  // flight and 250 of the request make 250, 500 and 1,000.
  test("is prefill in flight and the request's own uncached tokens, as llm-d's scorer adds them up", () => {
    const rows: CandidateRow[] = [
      { key: "pod1" },
      { key: "pod2", pendingPrefillTokens: 250 },
      { key: "pod3", pendingPrefillTokens: 750 },
    ];
    const costs = explain(rows, {}, ofTokens(250)).candidates.map(({ cost }) => cost);
    expect(costs).toEqual([250, 500, 1_000]);
    const cached = rows.map((row) => ({ ...row, matchedTokens: 200, decodeTokens: 9_000, inFlight: 9 }));
    expect(explain(cached, {}, ofTokens(250)).candidates.map(({ cost }) => cost)).toEqual([50, 300, 800]);
  });

  test("has nothing of answers that are being written", () => {
    const rows: CandidateRow[] = [
      { key: "writing", matchedTokens: 9_001, decodeTokens: 90_000, inFlight: 40 },
      { key: "idle", matchedTokens: 9_000 },
    ];
    expect(shares(rows)).toEqual({ writing: 1, idle: 0 });
  });
});

describe("the time that prompts in flight take", () => {
  test("is at one rate for all engines of a weight, whatever is learned, and counts what others have in the queue", () => {
    const fresh = { signalAgeMs: 100, running: 0, inFlightAtSignal: 0 };
    const rows: CandidateRow[] = [
      { key: "own", pendingPrefillTokens: 1_000, waiting: 0, backlogMs: 7, prefillMsPerToken: 3, ...fresh },
      { key: "foreign", waiting: 2, ...fresh },
      { key: "fast", weight: 2, pendingPrefillTokens: 1_000, waiting: 0, ...fresh },
      { key: "holder", matchedTokens: 4_000, waiting: 0, ...fresh },
    ];
    const options = { "foreign-request-tokens": 1_000, "prefill-tokens-per-second": 20_000 };
    const expected = [50, 100, 25, 0];
    for (const [i, time] of times(rows, options).entries()) expect(time).toBeCloseTo(expected[i]!, 9);
  });
});

describe("the bound on the penalty", () => {
  const at = (pendingPrefillTokens: number): CandidateRow[] => [
    { key: "busy holder", matchedTokens: 10_000, pendingPrefillTokens: pendingPrefillTokens + 90_000 },
    { key: "holder", matchedTokens: 9_000, pendingPrefillTokens },
    { key: "idle" },
  ];

  // llm-d/llm-d-router@ebab6879, pkg/epp/framework/plugins/scheduling/filter/prefixcacheaffinity/plugin_test.go: at 1,000 tokens a
  // second 500 and 50 tokens in flight are 450 ms apart, which is more than 100 and less than 1,000.
  test("is as llm-d's filter has it", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 9_000, pendingPrefillTokens: 500 },
      { key: "b", matchedTokens: 5_000, pendingPrefillTokens: 50 },
    ];
    const rate = { "prefill-tokens-per-second": 1_000 };
    expect(explain(rows, { ...rate, "max-ttft-penalty-ms": 100 }).reason).toBe("affinity_too_slow");
    expect(explain(rows, { ...rate, "max-ttft-penalty-ms": 1_000 }).reason).toBe("affinity");
    expect(explain(rows, { ...rate, "max-ttft-penalty-ms": 0 }).reason).toBe("affinity");
  });

  test("is 18 seconds between the best that hold it and the best other", () => {
    const most = 18 * 15_928;
    expect(explain(at(most)).reason).toBe("affinity");
    expect(shares(at(most))).toEqual({ "busy holder": 0, holder: 1, idle: 0 });
    expect(explain(at(most + 1)).reason).toBe("affinity_too_slow");
    expect(shares(at(most + 1))).toEqual({ "busy holder": 0, holder: 0, idle: 1 });
  });

  test("and the rate behind it are options", () => {
    expect(explain(at(1_001), { "max-ttft-penalty-ms": 1, "prefill-tokens-per-second": 1e6 }).reason).toBe(
      "affinity_too_slow",
    );
    expect(explain(at(1_000), { "max-ttft-penalty-ms": 1, "prefill-tokens-per-second": 1e6 }).reason).toBe("affinity");
    expect(explain(at(1e9), { "max-ttft-penalty-ms": 0 }).reason).toBe("affinity");
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
        return rows[i]!.pendingPrefillTokens * 0.25;
      };
      const holders = all.filter((i) => rows[i]!.matchedTokens >= 8_000);
      const others = all.filter((i) => !holders.includes(i));
      const best = (indices: readonly number[]): number => Math.min(...indices.map(timeOf));
      const isTooLate = maxPenaltyMs > 0 && others.length > 0 && best(holders) - best(others) > maxPenaltyMs;
      const left = holders.length > 0 && !isTooLate ? holders : all;
      const tokens = (i: number): number =>
        rows[i]!.pendingPrefillTokens + Math.max(1, 10_000 - rows[i]!.matchedTokens);
      const chosen = left.filter((i) => tokens(i) === Math.min(...left.map(tokens)));
      const named = rows.map((row, i) => ({ key: `e${i}`, ...row }));
      const options = { "max-ttft-penalty-ms": maxPenaltyMs, "prefill-tokens-per-second": 4_000 };
      for (const [i, one] of explain(named, options).candidates.entries()) {
        expect(one.probability).toBeCloseTo(chosen.includes(i) ? 1 / chosen.length : 0, 9);
      }
    }),
    { numRuns: randomRuns(500) },
  );
});
