/** The scores of the Gateway API's endpoint picker and llm-d, worked by hand, then their sum. */

import { createSeededRandom } from "@espalier/core";
import { createPolicy, maxColdSlots, type Policy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, idleRows, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(1_000);
const none = { "queue-weight": 0, "kv-cache-utilization-weight": 0, "prefix-cache-weight": 0 };

function explain(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}) {
  return createPolicy("epp_weighted", options).explain(prompt, candidatesOf(rows));
}

/** One score alone, with weight 1; costs have its sign turned. */
function scores(name: string, rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}): number[] {
  const { candidates } = explain(rows, { ...none, [`${name}-weight`]: 1, ...options });
  for (const one of candidates) expect(Object.keys(one.terms)).toEqual([name.replaceAll("-", "_")]);
  return candidates.map((one) => 0 - one.cost!);
}

const fresh = { signalAgeMs: 100 };

// llm-d/llm-d-router@ebab6879, below pkg/epp/framework/plugins/scheduling/scorer: queuedepth/queue_test.go and
// kvcacheutilization/kvcache_utilization_test.go.
test("the scores are llm-d's: queues of 10, 5 and 0, and KV use of 0.8, 0.5 and 0", () => {
  const rows = (column: "waiting" | "kvUse", ...values: readonly number[]): CandidateRow[] =>
    values.map((value, i) => ({ key: `e${i}`, ...fresh, [column]: value }));
  expect(scores("queue", rows("waiting", 10, 5, 0))).toEqual([0, 0.5, 1]);
  expect(scores("queue", rows("waiting", 5, 5))).toEqual([1, 1]);
  expect(scores("kv-cache-utilization", rows("kvUse", 0.8, 0.5, 0))).toEqual([1 - 0.8, 0.5, 1]);
});

describe("queue", () => {
  const queues = (...lengths: number[]): CandidateRow[] =>
    lengths.map((waiting, i) => ({ key: `e${i}`, ...fresh, waiting }));

  test("the shortest has 1, the longest 0, the rest in proportion", () => {
    expect(scores("queue", queues(2, 10, 4, 8))).toEqual([1, 0, 0.75, 0.25]);
  });

  test("equal queues have 1 each, nobody reporting gives 0.5 each", () => {
    expect(scores("queue", queues(3, 3))).toEqual([1, 1]);
    expect(scores("queue", idleRows(2))).toEqual([0.5, 0.5]);
  });

  test.each([
    ["absent", {}],
    ["stale", { waiting: 0, signalAgeMs: 2_001 }],
  ])("a signal that is %s has the others' mean, not zero and not the best", (_what, signals) => {
    expect(scores("queue", [...queues(0, 4, 8), { key: "silent", ...signals }])).toEqual([1, 0.5, 0, 0.5]);
  });

  test("an engine of weight 2 may have twice the queue", () => {
    const rows = queues(8, 4, 0).map((row, i) => (i === 0 ? { ...row, weight: 2 } : row));
    expect(scores("queue", rows)).toEqual([0, 0, 1]);
  });
});

describe("kv-cache-utilization", () => {
  test("is the free share; outside of 0 to 1 it is at the edge", () => {
    const rows = [0, 0.25, 1, 1.02].map((kvUse, i) => ({ key: `e${i}`, ...fresh, kvUse }));
    expect(scores("kv-cache-utilization", rows)).toEqual([1, 0.75, 0, 0]);
  });

  test("who does not report has the mean of those who do, and 0.5 when nobody does", () => {
    const rows = [
      { key: "a", ...fresh, kvUse: 0.5 },
      { key: "b", ...fresh, kvUse: 0.75 },
      { key: "silent" },
      { key: "stale", kvUse: 0, signalAgeMs: 5_000 },
    ];
    expect(scores("kv-cache-utilization", rows)).toEqual([0.5, 0.25, 0.375, 0.375]);
    expect(scores("kv-cache-utilization", idleRows(3))).toEqual([0.5, 0.5, 0.5]);
  });
});

describe("prefix-cache", () => {
  test("is the matched share of the prompt, with slower tiers at their credit", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 500 },
      { key: "b", matchedTokens: 500, matchedCpuTokens: 200, matchedDiskTokens: 100, matchedExternalTokens: 100 },
      { key: "c" },
      { key: "d", matchedTokens: 5_000 },
    ];
    expect(scores("prefix-cache", rows)).toEqual([0.5, 0.725, 0, 1]);
    expect(scores("prefix-cache", rows, { "cpu-credit": 0, "disk-credit": 0, "external-credit": 0 })[1]).toBe(0.5);
  });
});

describe("active-request", () => {
  test("none in flight has 1, the most has 0, for the weight", () => {
    const rows: CandidateRow[] = [
      { key: "a", inFlight: 0 },
      { key: "b", inFlight: 2 },
      { key: "c", inFlight: 8 },
      { key: "d", inFlight: 8, weight: 2 },
    ];
    expect(scores("active-request", rows)).toEqual([1, 0.75, 0, 0.5]);
    expect(scores("active-request", idleRows(2))).toEqual([1, 1]);
  });
});

test("of the prompt's beginning alone the share is taken: beyond it all are alike", () => {
  const rows = [900, 500, 400, 250, 0].map((matchedTokens, i) => ({ key: `e${i}`, matchedTokens }));
  expect(scores("prefix-cache", rows, { "max-prefix-tokens": 500 })).toEqual([1, 1, 0.8, 0.5, 0]);
  expect(scores("prefix-cache", rows)).toEqual([0.9, 0.5, 0.4, 0.25, 0]);
});

describe("token-load", () => {
  test("falls from 1 to 0 at the threshold, the request in hand included", () => {
    const rows: CandidateRow[] = [
      { key: "a" },
      { key: "b", pendingPrefillTokens: 2_000, decodeTokens: 9_000 },
      { key: "c", pendingPrefillTokens: 2_000, matchedTokens: 600, weight: 2 },
      { key: "d", pendingPrefillTokens: 9_000 },
    ];
    expect(scores("token-load", rows, { "token-load-threshold": 4_000 })).toEqual([
      0.75,
      0.25,
      1 - 2_400 / 2 / 4_000,
      0,
    ]);
    expect(scores("token-load", rows)[3]).toBeCloseTo(1 - 10_000 / 4_194_304, 9);
  });

  test("is llm-d's: 0, 250 and 750 tokens in flight and 250 of the request, of 1,000", () => {
    const rows = [0, 250, 750].map((pendingPrefillTokens, i) => ({
      key: `e${i}`,
      pendingPrefillTokens,
      matchedTokens: 750,
    }));
    expect(scores("token-load", rows, { "token-load-threshold": 1_000 })).toEqual([0.75, 0.5, 0]);
  });

  test("a foreign request weighs what the option says", () => {
    const rows: CandidateRow[] = [{ key: "a", ...fresh, running: 0, waiting: 1, inFlightAtSignal: 0 }, { key: "b" }];
    const options = { "token-load-threshold": 10_000, "foreign-request-tokens": 4_000 };
    // Silent b is taken to have what a reports.
    expect(scores("token-load", rows, options)).toEqual([0.5, 0.5]);
  });
});

describe("no-hit-lru", () => {
  const only = { ...none, "no-hit-lru-weight": 1 };
  const random = createSeededRandom(8);
  const take = (policy: Policy, rows: readonly CandidateRow[]): string => {
    const candidates = candidatesOf(rows);
    return candidates.key[policy.choose(prompt, candidates, random).index]!;
  };
  const rank = (policy: Policy, rows: readonly CandidateRow[]): number[] =>
    policy.explain(prompt, candidatesOf(rows)).candidates.map((one) => 0 - one.cost!);

  test("cold prompts go round in the order of the last turn", () => {
    const policy = createPolicy("epp_weighted", only);
    const rows = idleRows(5);
    expect(rank(policy, rows)).toEqual([1, 1, 1, 1, 1]);
    const round = Array.from({ length: 5 }, () => take(policy, rows));
    expect(new Set(round).size).toBe(5);
    expect(Array.from({ length: 10 }, () => take(policy, rows))).toEqual([...round, ...round]);
    expect(round.map((key) => rank(policy, rows)[rows.findIndex((row) => row.key === key)])).toEqual([
      1, 0.75, 0.5, 0.25, 0,
    ]);
  });

  test("who took none yet comes before all that did, and counts in their ranks", () => {
    const policy = createPolicy("epp_weighted", only);
    take(policy, [{ key: "a" }, { key: "x", weight: 0 }, { key: "b" }]);
    const used = rank(policy, [{ key: "a" }, { key: "b" }]);
    expect([...used].sort()).toEqual([0, 1]);
    const withNew = rank(policy, [{ key: "a" }, { key: "b" }, { key: "new" }]);
    expect([...withNew].sort()).toEqual([0, 1, 1]);
  });

  test("a prompt that any cache has a part of is neutral and takes no turn", () => {
    const policy = createPolicy("epp_weighted", only);
    const first = take(policy, idleRows(2));
    const warm: CandidateRow[] = [{ key: "e0", matchedDiskTokens: 16 }, { key: "e1" }];
    expect(rank(policy, warm)).toEqual([0.5, 0.5]);
    for (let i = 0; i < 20; i++) take(policy, warm);
    expect(take(policy, idleRows(2))).not.toBe(first);
  });

  test("engines that are absent keep their turn", () => {
    const policy = createPolicy("epp_weighted", only);
    const rows = idleRows(3);
    const round = Array.from({ length: 3 }, () => take(policy, rows));
    const rest = rows.filter((row) => row.key !== round[0]);
    expect([take(policy, rest), take(policy, rest)]).toEqual([round[1], round[2]]);
    expect(take(policy, rows)).toBe(round[0]);
  });

  test("explaining takes no turn", () => {
    const policy = createPolicy("epp_weighted", only);
    take(policy, idleRows(3));
    const before = rank(policy, idleRows(3));
    for (let i = 0; i < 5; i++) expect(rank(policy, idleRows(3))).toEqual(before);
  });

  test("one engine past the bound makes it forget the one whose turn is longest ago, and nobody else", () => {
    const policy = createPolicy("epp_weighted", { ...only, "active-request-weight": 10 });
    const pair = (key: string): CandidateRow[] => [{ key }, { key: "busy", inFlight: 9 }];
    for (let i = 0; i < maxColdSlots; i++) expect(take(policy, pair(`k${i}`))).toBe(`k${i}`);
    const idle = (...keys: string[]) => byKey(policy.explain(prompt, candidatesOf(keys.map((key) => ({ key })))));
    expect(idle("k0", "k1", "never")).toEqual({ k0: 0, k1: 0, never: 1 });
    take(policy, pair("one more"));
    expect(idle("k0", "k1", "never")).toEqual({ k0: 0.5, k1: 0, never: 0.5 });
  });
});

test("every score is from 0 to 1, whatever engines report, and unknown is never the worst of them", () => {
  const rows = fc.array(
    fc.record({
      weight: fc.constantFrom(0.5, 1, 3),
      inFlight: fc.integer({ min: 0, max: 50 }),
      pendingPrefillTokens: fc.constantFrom(0, 900, 9_000_000),
      waiting: fc.constantFrom(0, 3, 40, Number.NaN),
      running: fc.constantFrom(0, 9, Number.NaN),
      kvUse: fc.constantFrom(0, 0.3, 1, 1.5, Number.NaN),
      signalAgeMs: fc.constantFrom(0, 2_000, 2_001, Number.NaN),
      matchedTokens: fc.constantFrom(0, 0, 16, 1_000, 9_999),
      matchedCpuTokens: fc.constantFrom(0, 500),
    }),
    { minLength: 2, maxLength: 8 },
  );
  const names = ["queue", "kv-cache-utilization", "prefix-cache", "active-request", "token-load", "no-hit-lru"];
  fc.assert(
    fc.property(rows, fc.constantFrom(...names), (values, name) => {
      const all = scores(
        name,
        values.map((row, i) => ({ key: `e${i}`, ...row })),
      );
      for (const score of all) {
        expect(score).toBeGreaterThanOrEqual(0);
        expect(score).toBeLessThanOrEqual(1);
      }
      if (name !== "queue" && name !== "kv-cache-utilization") return;
      const silent = all.filter((_, i) => !(values[i]!.signalAgeMs <= 2_000));
      const least = Math.min(...all);
      for (const score of silent) if (score <= least) expect(new Set(all.map((one) => one.toFixed(6))).size).toBe(1);
    }),
    { numRuns: randomRuns(400) },
  );
});

describe("the sum", () => {
  const rows: CandidateRow[] = [
    { key: "warm", ...fresh, waiting: 4, kvUse: 0.9, matchedTokens: 900 },
    { key: "idle", ...fresh, waiting: 0, kvUse: 0.1 },
    { key: "middling", ...fresh, waiting: 2, kvUse: 0.5, matchedTokens: 500 },
  ];

  test("by default 2, 2 and 3: a long match does not outweigh a long queue and a full cache", () => {
    const { reason, candidates } = explain(rows);
    expect(reason).toBe("best_score");
    expect(candidates.map((one) => one.terms)).toEqual([
      { queue: 0, kv_cache_utilization: expect.closeTo(-0.2, 9), prefix_cache: expect.closeTo(-2.7, 9) },
      { queue: -2, kv_cache_utilization: expect.closeTo(-1.8, 9), prefix_cache: 0 },
      { queue: -1, kv_cache_utilization: -1, prefix_cache: -1.5 },
    ]);
    expect(candidates.map((one) => one.cost)).toEqual([
      expect.closeTo(-2.9, 9),
      expect.closeTo(-3.8, 9),
      expect.closeTo(-3.5, 9),
    ]);
    expect(byKey(explain(rows))).toEqual({ warm: 0, idle: 1, middling: 0 });
  });

  test("weights turn it", () => {
    expect(byKey(explain(rows, { "prefix-cache-weight": 4 }))).toEqual({ warm: 0, idle: 0, middling: 1 });
    expect(byKey(explain(rows, { "prefix-cache-weight": 12 }))).toEqual({ warm: 1, idle: 0, middling: 0 });
  });

  test("equals are taken in proportion to their weights", () => {
    const equal: CandidateRow[] = [{ key: "a" }, { key: "b", weight: 3 }, { key: "c", weight: 0 }];
    const { byKey: taken, reasons } = tally(createPolicy("epp_weighted"), equal, 4_000, prompt);
    expect(taken.c).toBe(0);
    expect(chiSquareExcess([taken.a!, taken.b!], [1_000, 3_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["best_score"]);
  });

  test("without any score it is chance by weight, and no terms", () => {
    const { candidates } = explain(rows, none);
    for (const one of candidates) expect(one).toMatchObject({ probability: expect.closeTo(1 / 3, 9), terms: {} });
  });

  test("scores that come to the same sum in another way are equal", () => {
    const sums: CandidateRow[] = [
      { key: "a", ...fresh, kvUse: 0.3, matchedTokens: 100 },
      { key: "b", ...fresh, kvUse: 0.1, matchedTokens: 0 },
    ];
    // 2 x 0.7 + 2 x 0.1 and 2 x 0.9, with queues that nobody reports.
    expect(byKey(explain(sums, { "prefix-cache-weight": 4 }))).toEqual({ a: 0.5, b: 0.5 });
  });
});
