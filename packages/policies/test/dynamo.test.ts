import { createPolicy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(1_600);

/** Costs are those of prompts whose blocks are all in use already, unless a row says what is new. */
const inUse = (rows: readonly CandidateRow[]): CandidateRow[] => rows.map((row) => ({ newActiveTokens: 0, ...row }));

function explain(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}, request = prompt) {
  return createPolicy("dynamo", options).explain(request, candidatesOf(inUse(rows)));
}
const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
const costs = (...args: Parameters<typeof explain>) =>
  Object.fromEntries(explain(...args).candidates.map((one) => [one.key, one.cost]));

describe("cost", () => {
  test("is blocks of prefill less the credit, and blocks of decode", () => {
    const rows: CandidateRow[] = [
      { key: "idle" },
      { key: "holder", matchedTokens: 1_280 },
      { key: "busy holder", matchedTokens: 1_280, pendingPrefillTokens: 800, activeTokens: 640 },
      { key: "decoding", activeTokens: 640, newActiveTokens: 16, decodeTokens: 90_000 },
    ];
    expect(costs(rows)).toEqual({ idle: 100, holder: 20, "busy holder": 20 + 50 + 40, decoding: 100 + 41 });
    expect(shares(rows)).toEqual({ idle: 0, holder: 1, "busy holder": 0, decoding: 0 });
  });

  // ai-dynamo/dynamo@07a6c9ce, lib/kv-router/src/scheduling/selector/default.rs, in blocks of 16.
  test("is NVIDIA's: test_worker_logit_clamps_non_decode_overlap_credit, 2 x max(0, 7 - 6) + 2 + 3 and 5 without prefill", () => {
    // They credit six blocks of a prompt of four; here no more than the prompt is credited: 16 tokens pending and none of its own.
    const row: CandidateRow = {
      ...{ key: "a", matchedTokens: 96, pendingPrefillTokens: 16, activeTokens: 2 * 16, newActiveTokens: 3 * 16 },
    };
    expect(costs([row], { "prefill-load-scale": 2 }, ofTokens(64))).toEqual({ a: 7 });
    expect(costs([row], { "prefill-load-scale": 0 }, ofTokens(64))).toEqual({ a: 5 });
  });

  test("is NVIDIA's: test_prefill_load_scale_applies_after_overlap_credits, 2 x (4 - 2) + 3 before 2 x 4", () => {
    const rows: CandidateRow[] = [{ key: "0", matchedTokens: 32, activeTokens: 48 }, { key: "1" }];
    expect(costs(rows, { "prefill-load-scale": 2 }, ofTokens(64))).toEqual({ 0: 7, 1: 8 });
    expect(shares(rows, { "prefill-load-scale": 2 }, ofTokens(64))).toEqual({ 0: 1, 1: 0 });
  });

  test("is NVIDIA's: test_overlap_credit_above_one_can_prefer_colocated_worker, with a credit of 1: 8 before 8 - 4 + 5", () => {
    const rows: CandidateRow[] = [{ key: "warm", matchedTokens: 64, activeTokens: 80 }, { key: "cold" }];
    expect(costs(rows, {}, ofTokens(128))).toEqual({ warm: 9, cold: 8 });
  });

  test("is NVIDIA's: test_shared_cache_hits_scoring, blocks of a pool beyond the device's at half: 4 - 2 - 1 and 4 - 2", () => {
    const rows: CandidateRow[] = [
      { key: "0", matchedTokens: 2, matchedExternalTokens: 2 },
      { key: "1", matchedExternalTokens: 4 },
    ];
    expect(costs(rows, { "block-size": 1, "external-credit": 0.5 }, ofTokens(4))).toEqual({ 0: 1, 1: 2 });
  });

  test("takes all full blocks of the prompt for new ones where no account is kept", () => {
    const unknown: CandidateRow = { key: "unknown", newActiveTokens: Number.NaN };
    expect(costs([unknown], {}, ofTokens(47))).toEqual({ unknown: 47 / 16 + 2 });
  });

  test("credits 1 for a block in the GPU, 0.75 in CPU memory, 0.25 on disk, and as set in a pool outside", () => {
    const rows: CandidateRow[] = [
      { key: "gpu", matchedTokens: 160 },
      { key: "cpu", matchedCpuTokens: 160 },
      { key: "disk", matchedDiskTokens: 160 },
      { key: "external", matchedExternalTokens: 160 },
      { key: "all", matchedTokens: 160, matchedCpuTokens: 160, matchedDiskTokens: 160, matchedExternalTokens: 160 },
    ];
    expect(costs(rows)).toEqual({ gpu: 90, cpu: 92.5, disk: 97.5, external: 95, all: 75 });
    const options = { "cpu-credit": 1, "disk-credit": 0, "external-credit": 0.2 };
    expect(costs(rows, options)).toEqual({ gpu: 90, cpu: 90, disk: 100, external: 98, all: 78 });
  });

  test("counts prefill as often as its scale says: a high one goes for matches, 0 for decode alone", () => {
    const rows: CandidateRow[] = [{ key: "holder", matchedTokens: 800, activeTokens: 1_600 }, { key: "idle" }];
    expect(costs(rows)).toEqual({ holder: 150, idle: 100 });
    expect(costs(rows, { "prefill-load-scale": 3 })).toEqual({ holder: 250, idle: 300 });
    expect(costs(rows, { "prefill-load-scale": 0 })).toEqual({ holder: 100, idle: 0 });
  });

  test("knows blocks of another size", () => {
    const rows: CandidateRow[] = [
      { key: "a", newActiveTokens: 64 },
      { key: "b", activeTokens: 256, matchedTokens: 640 },
    ];
    expect(costs(rows, { "block-size": 128 })).toEqual({ a: 13, b: 9.5 });
    expect(costs(rows, { "block-size": 1 })).toEqual({ a: 1_664, b: 960 + 256 });
  });

  test("divides by the weight, and counts queued requests of other clients", () => {
    const fresh = { running: 0, inFlightAtSignal: 0, signalAgeMs: 100 };
    const rows: CandidateRow[] = [
      {
        key: "fast",
        weight: 2,
        pendingPrefillTokens: 320,
        activeTokens: 320,
        matchedTokens: 320,
        waiting: 0,
        ...fresh,
      },
      { key: "foreign", waiting: 3, ...fresh },
    ];
    expect(costs(rows, { "foreign-request-tokens": 160 })).toEqual({ fast: 50 + 10, foreign: 130 });
  });

  test("is never below the decode, whatever is credited, and known for a prompt that is not", () => {
    const row: CandidateRow = { key: "a", matchedTokens: 9_000, matchedCpuTokens: 9_000, activeTokens: 32 };
    expect(costs([row, { key: "b" }])).toEqual({ a: 2, b: 100 });
    expect(costs([row, { key: "b" }], {}, ofTokens(0))).toEqual({ a: 2, b: 0 });
  });
});

describe("temperature", () => {
  const rows: CandidateRow[] = [
    { key: "cheap", matchedTokens: 1_600 },
    { key: "middle", matchedTokens: 800 },
    { key: "dear" },
  ];

  test("0 takes the lowest cost, equals by weight", () => {
    expect(shares(rows)).toEqual({ cheap: 1, middle: 0, dear: 0 });
    expect(explain(rows).reason).toBe("least_cost");
    const equal: CandidateRow[] = [{ key: "a" }, { key: "b", weight: 3, pendingPrefillTokens: 3_200 }];
    expect(shares(equal)).toEqual({ a: 0.25, b: 0.75 });
  });

  test("above it the dearest is exp(1 / T) times less likely than the cheapest, one half way the root of that", () => {
    for (const temperature of [0.25, 1, 4]) {
      const { cheap = 0, middle = 0, dear = 0 } = shares(rows, { temperature });
      expect(cheap / dear).toBeCloseTo(Math.exp(1 / temperature), 9);
      expect(cheap / middle).toBeCloseTo(Math.exp(0.5 / temperature), 9);
      expect(explain(rows, { temperature }).reason).toBe("softmax");
    }
  });

  test("means the same whatever the size of the costs", () => {
    const larger = rows.map((row) => ({ ...row, matchedTokens: 10 * (row.matchedTokens ?? 0) }));
    const [small, large] = [shares(rows, { temperature: 0.7 }), shares(larger, { temperature: 0.7 }, ofTokens(16_000))];
    for (const key of ["cheap", "middle", "dear"]) expect(large[key]).toBeCloseTo(small[key]!, 12);
  });

  test("near 0 draws the cheapest, and far above everybody by weight", () => {
    expect(shares(rows, { temperature: 1e-9 })).toEqual({ cheap: 1, middle: 0, dear: 0 });
    const weighted: CandidateRow[] = [{ key: "a" }, { key: "b", weight: 3, activeTokens: 99_000 }];
    expect(shares(weighted, { temperature: 1e9 }).b).toBeCloseTo(0.75, 6);
    expect(shares([{ key: "a" }, { key: "b" }], { temperature: 0.1 })).toEqual({ a: 0.5, b: 0.5 });
  });

  test("the draw is as explained", () => {
    const many = Array.from(
      { length: 8 },
      (_, at): CandidateRow => ({ key: `e${at}`, activeTokens: 320 * at, newActiveTokens: 0 }),
    );
    const options = { temperature: 0.5 };
    const expected = shares(many, options);
    const draws = 20_000;
    const { byKey: drawn, reasons } = tally(createPolicy("dynamo", options), many, draws, prompt);
    expect(
      chiSquareExcess(
        many.map(({ key }) => drawn[key]!),
        many.map(({ key }) => draws * expected[key]!),
      ),
    ).toBeLessThan(1);
    expect([...reasons]).toEqual(["softmax"]);
  });

  test("what cannot be judged is drawn only where nobody can be", () => {
    const broken: CandidateRow = { key: "broken", activeTokens: Number.NaN };
    const options = { temperature: 1e9 };
    expect(shares([broken, { key: "a" }, { key: "b" }], options)).toEqual({ broken: 0, a: 0.5, b: 0.5 });
    expect(tally(createPolicy("dynamo", options), [{ key: "a" }, broken], 200, prompt).byKey).toEqual({
      a: 200,
      broken: 0,
    });
    expect(shares([broken, { ...broken, key: "too" }], options)).toEqual({ broken: 0.5, too: 0.5 });
  });
});

test("decides as the rule written down plainly does", () => {
  const values = fc.array(
    fc.record({
      weight: fc.constantFrom(0.5, 1, 2),
      activeTokens: fc.integer({ min: 0, max: 250 }).map((n) => n * 16),
      newActiveTokens: fc.constantFrom(0, 160, 1_600, Number.NaN),
      pendingPrefillTokens: fc.integer({ min: 0, max: 40 }).map((n) => n * 25),
      matchedTokens: fc.integer({ min: 0, max: 50 }).map((n) => n * 16),
      matchedCpuTokens: fc.constantFrom(0, 160, 1_600),
    }),
    { minLength: 2, maxLength: 7 },
  );
  fc.assert(
    fc.property(values, fc.constantFrom(0, 1, 2), fc.constantFrom(0, 0.5), (rows, scale, temperature) => {
      const cost = rows.map((row) => {
        const credit = Math.min(1_600, row.matchedTokens + 0.75 * row.matchedCpuTokens);
        const prefill = Math.max(0, row.pendingPrefillTokens + 1_600 - credit) / 16;
        const added = Number.isNaN(row.newActiveTokens) ? 1_600 : row.newActiveTokens;
        return (scale * prefill + (row.activeTokens + added) / 16) / row.weight;
      });
      const lowest = Math.min(...cost);
      const range = Math.max(...cost) - lowest;
      const merit = rows.map(({ weight }, i) => {
        const distance = cost[i]! - lowest;
        if (temperature === 0 || range === 0) return distance < 1e-6 ? weight : 0;
        return weight * Math.exp(-distance / range / temperature);
      });
      const sum = merit.reduce((total, one) => total + one, 0);
      const named = rows.map((row, i) => ({ key: `e${i}`, ...row }));
      const { candidates } = explain(named, { "prefill-load-scale": scale, temperature });
      for (const [i, one] of candidates.entries()) expect(one.probability).toBeCloseTo(merit[i]! / sum, 9);
    }),
    { numRuns: randomRuns(500) },
  );
});
