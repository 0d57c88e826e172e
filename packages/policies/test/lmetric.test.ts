import { createPolicy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(4_000);

function explain(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}, request = prompt) {
  return createPolicy("lmetric", options).explain(request, candidatesOf(rows));
}
const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
const costs = (...args: Parameters<typeof explain>) =>
  Object.fromEntries(explain(...args).candidates.map((one) => [one.key, one.cost]));

test("the prefill there would be times the requests there would be", () => {
  const rows: CandidateRow[] = [
    { key: "idle" },
    { key: "holder", matchedTokens: 3_000, inFlight: 3, decodeTokens: 90_000 },
    { key: "busy holder", matchedTokens: 3_000, pendingPrefillTokens: 600, inFlight: 2 },
  ];
  expect(costs(rows)).toEqual({ idle: 4_000, holder: 4_000, "busy holder": 4_800 });
  expect(shares(rows)).toEqual({ idle: 0.5, holder: 0.5, "busy holder": 0 });
});

test("a match of three quarters outweighs up to four times the requests, whatever their number", () => {
  for (const requests of [1, 10, 100]) {
    const at = (inFlight: number) => [
      { key: "holder", matchedTokens: 3_000, inFlight },
      { key: "other", inFlight: requests - 1 },
    ];
    expect(shares(at(4 * requests - 2))).toEqual({ holder: 1, other: 0 });
    expect(shares(at(4 * requests))).toEqual({ holder: 0, other: 1 });
  }
});

test("neither factor is ever 0: of prompts cached in full the fewest requests win, of idle engines the least prefill", () => {
  const cached: CandidateRow[] = [
    { key: "a", matchedTokens: 4_000, inFlight: 2 },
    { key: "b", matchedTokens: 9_000, inFlight: 1 },
  ];
  expect(costs(cached)).toEqual({ a: 3, b: 2 });
  expect(shares([{ key: "a", matchedTokens: 16 }, { key: "b" }])).toEqual({ a: 1, b: 0 });
  expect(costs(cached, {}, ofTokens(0))).toEqual({ a: 3, b: 2 });
});

test("slower tiers save less, at credits that are options", () => {
  const rows: CandidateRow[] = [
    { key: "cpu", matchedCpuTokens: 1_000 },
    { key: "disk", matchedDiskTokens: 1_000 },
    { key: "external", matchedExternalTokens: 1_000 },
  ];
  expect(costs(rows)).toEqual({ cpu: 3_250, disk: 3_750, external: 3_500 });
  const options = { "cpu-credit": 1, "disk-credit": 0, "external-credit": 0.9 };
  expect(costs(rows, options)).toEqual({ cpu: 3_000, disk: 4_000, external: 3_100 });
});

test("requests of other clients enter both factors, queued ones with what they are taken to weigh", () => {
  const fresh = { signalAgeMs: 100, inFlightAtSignal: 0 };
  const rows: CandidateRow[] = [
    { key: "batch", ...fresh, running: 2, waiting: 0 },
    { key: "queue", ...fresh, running: 2, waiting: 3 },
    { key: "silent" },
  ];
  // Silent is taken to have the mean: 3.5 requests, of which 1.5 wait.
  expect(costs(rows, { "foreign-request-tokens": 100 })).toEqual({
    batch: 4_000 * 3,
    queue: 4_300 * 6,
    silent: 4_150 * 4.5,
  });
});

test("an engine of weight 2 bears twice the prefill and twice the requests; equals are drawn by weight", () => {
  const rows: CandidateRow[] = [
    { key: "fast", weight: 2, inFlight: 3, pendingPrefillTokens: 4_000 },
    { key: "slow", inFlight: 1 },
  ];
  expect(costs(rows)).toEqual({ fast: 4_000 * 2, slow: 4_000 * 2 });
  const { byKey: drawn, reasons } = tally(createPolicy("lmetric"), rows, 4_000, prompt);
  expect(chiSquareExcess([drawn.fast!, drawn.slow!], [(4_000 * 2) / 3, 4_000 / 3])).toBeLessThan(1);
  expect([...reasons]).toEqual(["least_cost"]);
});

test("decides as the rule written down plainly does", () => {
  const values = fc.array(
    fc.record({
      weight: fc.constantFrom(0.5, 1, 2),
      inFlight: fc.integer({ min: 0, max: 40 }),
      pendingPrefillTokens: fc.integer({ min: 0, max: 40 }).map((n) => n * 25),
      matchedTokens: fc.integer({ min: 0, max: 20 }).map((n) => n * 50),
      matchedCpuTokens: fc.constantFrom(0, 200, 4_000),
    }),
    { minLength: 2, maxLength: 7 },
  );
  fc.assert(
    fc.property(values, (rows) => {
      const cost = rows.map((row) => {
        const uncached = Math.max(1, 1_000 - row.matchedTokens - 0.75 * row.matchedCpuTokens);
        return ((row.pendingPrefillTokens + uncached) / row.weight) * ((row.inFlight + 1) / row.weight);
      });
      const best = rows.map((_, i) => i).filter((i) => cost[i]! <= Math.min(...cost) + 1e-6);
      const weight = best.reduce((sum, i) => sum + rows[i]!.weight, 0);
      const named = rows.map((row, i) => ({ key: `e${i}`, ...row }));
      for (const [i, one] of explain(named, {}, ofTokens(1_000)).candidates.entries()) {
        expect(one.probability).toBeCloseTo(best.includes(i) ? rows[i]!.weight / weight : 0, 9);
      }
    }),
    { numRuns: randomRuns(500) },
  );
});
