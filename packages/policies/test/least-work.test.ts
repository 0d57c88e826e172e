import { createPolicy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(4_000);

function explain(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}, request = prompt) {
  return createPolicy("least_work", options).explain(request, candidatesOf(rows));
}
const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
const costs = (...args: Parameters<typeof explain>) =>
  Object.fromEntries(explain(...args).candidates.map((one) => [one.key, one.cost]));

describe("work", () => {
  test("a match is worth as much prefill as it saves, and no more", () => {
    const at = (pendingPrefillTokens: number): CandidateRow[] => [
      { key: "warm", matchedTokens: 3_000, pendingPrefillTokens },
      { key: "cold" },
    ];
    expect(costs(at(2_000))).toEqual({ warm: 3_000, cold: 4_000 });
    expect(shares(at(2_900))).toEqual({ warm: 1, cold: 0 });
    expect(shares(at(3_100))).toEqual({ warm: 0, cold: 1 });
  });

  test("slower tiers save less: credits for CPU, disk and a pool outside", () => {
    const rows: CandidateRow[] = [
      { key: "gpu", matchedTokens: 1_000 },
      { key: "cpu", matchedCpuTokens: 1_000 },
      { key: "disk", matchedDiskTokens: 1_000 },
      { key: "external", matchedExternalTokens: 1_000 },
      { key: "all", matchedTokens: 400, matchedCpuTokens: 400, matchedDiskTokens: 400, matchedExternalTokens: 400 },
    ];
    expect(costs(rows)).toEqual({ gpu: 3_000, cpu: 3_250, disk: 3_750, external: 3_500, all: 3_000 });
    const options = { "cpu-credit": 1, "disk-credit": 0, "external-credit": 0.9 };
    expect(costs(rows, options)).toEqual({ gpu: 3_000, cpu: 3_000, disk: 4_000, external: 3_100, all: 2_840 });
  });

  test("the last token of a prompt is always computed, whatever is matched", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 4_000 },
      { key: "b", matchedTokens: 9_000, matchedCpuTokens: 9_000 },
    ];
    expect(costs(rows)).toEqual({ a: 1, b: 1 });
    expect(costs(rows, {}, ofTokens(0))).toEqual({ a: 1, b: 1 });
  });

  test("an engine of weight 2 does twice the work in the time", () => {
    const rows: CandidateRow[] = [
      { key: "fast", weight: 2, pendingPrefillTokens: 6_000 },
      { key: "slow", pendingPrefillTokens: 500 },
    ];
    expect(costs(rows)).toEqual({ fast: 5_000, slow: 4_500 });
  });

  test("queued requests of other clients count, and theirs that run do not", () => {
    const fresh = { signalAgeMs: 100, inFlightAtSignal: 2, inFlight: 2 };
    const rows: CandidateRow[] = [
      { key: "queue", ...fresh, running: 10, waiting: 3 },
      { key: "batch", ...fresh, running: 10, waiting: 0 },
      { key: "ours", ...fresh, running: 0, waiting: 2 },
      { key: "mixed", ...fresh, running: 0, waiting: 5 },
    ];
    // Ours has 2 waiting, both ours; mixed has 5 waiting, of which at most 3 are others'.
    const options = { "foreign-request-tokens": 100 };
    expect(costs(rows, options)).toEqual({ queue: 4_300, batch: 4_000, ours: 4_000, mixed: 4_300 });
    expect(costs(rows)).toMatchObject({ queue: 4_000 + 3 * 1_024 });
  });

  test.each([
    ["stale", { running: 9, waiting: 9, inFlightAtSignal: 0, signalAgeMs: 2_001 }],
    ["absent", {}],
    ["without our own count", { running: 9, waiting: 9, signalAgeMs: 0 }],
  ])("an engine whose signals are %s is taken to have the others' mean", (_what, signals) => {
    const fresh = { running: 4, inFlightAtSignal: 0, signalAgeMs: 100 };
    const rows: CandidateRow[] = [
      { key: "a", ...fresh, waiting: 4 },
      { key: "b", ...fresh, waiting: 2 },
      { key: "silent", ...signals },
    ];
    expect(costs(rows, { "foreign-request-tokens": 100 })).toEqual({ a: 4_400, b: 4_200, silent: 4_300 });
  });

  test("decoding is not work: it decides between equals only", () => {
    const rows: CandidateRow[] = [
      { key: "decoding", decodeTokens: 90_000, inFlight: 40, matchedTokens: 1_000 },
      { key: "idle" },
    ];
    expect(shares(rows)).toEqual({ decoding: 1, idle: 0 });
    expect(shares(rows.map(({ key, ...row }) => ({ key, ...row, matchedTokens: 0 })))).toEqual({
      decoding: 0,
      idle: 1,
    });
  });
});

describe("near ties", () => {
  const rows: CandidateRow[] = [
    { key: "a", pendingPrefillTokens: 0, inFlight: 5 },
    { key: "b", pendingPrefillTokens: 64, inFlight: 2 },
    { key: "c", pendingPrefillTokens: 65, inFlight: 0 },
    { key: "d", pendingPrefillTokens: 30, inFlight: 2 },
  ];

  test("within 64 tokens the fewest requests win, then chance", () => {
    expect(shares(rows)).toEqual({ a: 0, b: 0.5, c: 0, d: 0.5 });
    const { byKey: taken, reasons } = tally(createPolicy("least_work"), rows, 2_000, prompt);
    expect([taken.a, taken.c]).toEqual([0, 0]);
    expect(chiSquareExcess([taken.b!, taken.d!], [1_000, 1_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["least_work"]);
  });

  test("how near is an option; 0 leaves equals", () => {
    expect(shares(rows, { "near-tie-tokens": 65 })).toEqual({ a: 0, b: 0, c: 1, d: 0 });
    expect(shares(rows, { "near-tie-tokens": 30 })).toEqual({ a: 0, b: 0, c: 0, d: 1 });
    expect(shares(rows, { "near-tie-tokens": 0 })).toEqual({ a: 1, b: 0, c: 0, d: 0 });
  });

  test("equal work is equal however it was added up", () => {
    const thirds: CandidateRow[] = Array.from({ length: 20 }, (_, i) => ({
      key: `e${i}`,
      weight: 3,
      inFlight: 1,
      pendingPrefillTokens: 100 + i * 7,
      matchedTokens: i * 7,
    }));
    for (const share of Object.values(shares(thirds, { "near-tie-tokens": 0 }))) expect(share).toBeCloseTo(1 / 20);
  });

  test("between engines that are equal in all, the heavier is taken more often", () => {
    const equal: CandidateRow[] = [
      { key: "light", inFlight: 1, pendingPrefillTokens: 0 },
      { key: "heavy", weight: 3, inFlight: 5, pendingPrefillTokens: 8_000 },
    ];
    const explained = shares(equal);
    expect(explained.light).toBeCloseTo(0.25);
    expect(explained.heavy).toBeCloseTo(0.75);
    const { byKey: taken } = tally(createPolicy("least_work"), equal, 4_000, prompt);
    expect(chiSquareExcess([taken.light!, taken.heavy!], [1_000, 3_000])).toBeLessThan(1);
  });
});

test("explain adds the work up, and shows what decides between equals", () => {
  const rows: CandidateRow[] = [
    { key: "a", weight: 2, inFlight: 3, pendingPrefillTokens: 500, matchedTokens: 1_000 },
    { key: "b", running: 3, waiting: 2, inFlightAtSignal: 0, signalAgeMs: 5 },
  ];
  const { reason, candidates } = explain(rows, { "foreign-request-tokens": 10 });
  expect(reason).toBe("least_work");
  // Two foreign requests wait at b; a, of twice the weight and silent, is taken to have four, and ten in all.
  const noAdapter = { adapter_load_tokens: 0 };
  expect(candidates.map((one) => one.terms)).toEqual([
    { pending_prefill_tokens: 250, foreign_prefill_tokens: 20, ...noAdapter, uncached_tokens: 1_500, requests: 7 },
    { pending_prefill_tokens: 0, foreign_prefill_tokens: 20, ...noAdapter, uncached_tokens: 4_000, requests: 6 },
  ]);
  expect(candidates.map((one) => one.cost)).toEqual([1_770, 4_020]);
});

test("decides as the rule written down plainly does", () => {
  const values = fc.array(
    fc.record({
      weight: fc.constantFrom(0.5, 1, 2),
      inFlight: fc.integer({ min: 0, max: 3 }),
      pendingPrefillTokens: fc.integer({ min: 0, max: 40 }).map((n) => n * 25),
      matchedTokens: fc.integer({ min: 0, max: 20 }).map((n) => n * 50),
      matchedCpuTokens: fc.constantFrom(0, 200, 4_000),
    }),
    { minLength: 2, maxLength: 7 },
  );
  fc.assert(
    fc.property(values, fc.constantFrom(0, 64, 200), (rows, nearTieTokens) => {
      const work = rows.map((row) => {
        const credit = row.matchedTokens + 0.75 * row.matchedCpuTokens;
        return (row.pendingPrefillTokens + Math.max(1, 1_000 - credit)) / row.weight;
      });
      const near = rows.map((_, i) => i).filter((i) => work[i]! <= Math.min(...work) + nearTieTokens);
      const load = (i: number): number => (rows[i]!.inFlight + 1) / rows[i]!.weight;
      const best = near.filter((i) => load(i) === Math.min(...near.map(load)));
      const weight = best.reduce((sum, i) => sum + rows[i]!.weight, 0);
      const named = rows.map((row, i) => ({ key: `e${i}`, ...row }));
      const { candidates } = explain(named, { "near-tie-tokens": nearTieTokens }, ofTokens(1_000));
      for (const [i, one] of candidates.entries()) {
        expect(one.probability).toBeCloseTo(best.includes(i) ? rows[i]!.weight / weight : 0, 9);
      }
    }),
    { numRuns: randomRuns(500) },
  );
});
