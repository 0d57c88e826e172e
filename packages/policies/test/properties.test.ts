import { createSeededRandom } from "@espalier/core";
import { createPolicy, policyNames, type RequestFeatures } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  anyRequest,
  boundTo,
  byKey,
  type CandidateRow,
  candidatesOf,
  chiSquareExcess,
  inSession,
  tally,
  withPrefix,
} from "./helpers.ts";

const count = fc.integer({ min: 0, max: 6 });
const signals = fc.record(
  {
    inFlight: count,
    pendingPrefillTokens: fc.integer({ min: 0, max: 3 }).map((n) => n * 500),
    decodeTokens: fc.integer({ min: 0, max: 3 }).map((n) => n * 500),
    activeTokens: fc.integer({ min: 0, max: 3 }).map((n) => n * 480),
    newActiveTokens: fc.constantFrom(0, 240, 496),
    running: count,
    waiting: count,
    kvUse: fc.constantFrom(0, 0.5, 1),
    kvCapacityTokens: fc.constant(10_000),
    signalAgeMs: fc.constantFrom(0, 1_999, 2_500),
    inFlightAtSignal: count,
    weight: fc.constantFrom(0, 0.5, 1, 2),
    matchedTokens: fc.constantFrom(0, 64, 256, 500),
    matchedCpuTokens: fc.constantFrom(0, 128),
    matchedDiskTokens: fc.constantFrom(0, 64),
    matchedExternalTokens: fc.constantFrom(0, 64),
    matchAgeMs: fc.constantFrom(0, 60_000),
    heldTokens: fc.integer({ min: 0, max: 3 }).map((n) => n * 1_000),
    adapterState: fc.constantFrom(0, 1, 2, 3),
    networkMs: fc.constantFrom(0.25, 74),
    backlogMs: fc.constantFrom(0, 40, 500),
    prefillMsPerToken: fc.constantFrom(0.0625, 0.25),
    prefillMsPerTokenPair: fc.constantFrom(0, 1e-5),
  },
  { requiredKeys: [] },
);
const candidateRows = (minLength: number) =>
  fc
    .array(signals, { minLength, maxLength: 8 })
    .map((rows): CandidateRow[] => rows.map((row, i) => ({ key: `e${i}`, ...row })));
const request = fc.constantFrom(
  anyRequest,
  inSession("one"),
  inSession("another"),
  boundTo("e1"),
  boundTo("nobody"),
  withPrefix(7),
  withPrefix(2 ** 32 - 1),
  { ...anyRequest, adapter: "sql" },
  { ...anyRequest, busyShare: 0.8 },
);
const seed = fc.integer();

/** Every policy as it is by default, and some with options that reach what the defaults leave out. */
const variants: readonly (readonly [string, Readonly<Record<string, number>>])[] = [
  ...policyNames.map((name) => [name, {}] as const),
  ["cache_aware", { "cache-threshold": 0.1, "balance-abs-threshold": 1, "balance-rel-threshold": 1.1 }],
  ["cache_aware", { "miss-to-free-cache": 1 }],
  ["epp_weighted", { "active-request-weight": 1, "token-load-weight": 1, "token-load-threshold": 3_000 }],
  ["epp_weighted", { "no-hit-lru-weight": 2 }],
  ["affinity_filter", { "affinity-threshold": 0.5, "max-ttft-penalty-ms": 30, "prefill-tokens-per-second": 8_000 }],
  ["affinity_filter", { "max-ttft-penalty-ms": 0 }],
  ["dynamo", { "prefill-load-scale": 2, "block-size": 128, "external-credit": 1 }],
  ["dynamo", { temperature: 0.4 }],
  ["epp_weighted", { "lora-affinity-weight": 2 }],
  ["sticky", { "session-load-factor": 1.25, "session-free-requests": 2 }],
  ["sticky", { "session-load-factor": 0, "near-tie-tokens": 1_000 }],
  ["sticky", { "fewest-sessions": 1, "session-load-factor": 1.25, "session-free-requests": 2 }],
  ["least_work", { "near-tie-tokens": 0, "cpu-credit": 0.5 }],
  ["least_work", { "near-tie-tokens": 1_000 }],
];

describe.each(variants)("%s %j", (name, options) => {
  const explained = (rows: readonly CandidateRow[], asked = anyRequest) =>
    createPolicy(name, options).explain(asked, candidatesOf(rows));

  test("chooses a candidate that explain gives a probability, with a reason that explain names", () => {
    fc.assert(
      fc.property(candidateRows(1), request, seed, (rows, asked, from) => {
        const policy = createPolicy(name, options);
        const random = createSeededRandom(from);
        const candidates = candidatesOf(rows);
        for (let turn = 0; turn < 4; turn++) {
          const explanation = policy.explain(asked, candidates);
          const { index, target, reason } = policy.choose(asked, candidates, random);
          expect(index).toBeLessThan(rows.length);
          expect(target).toBe(100 + index);
          expect(explanation.candidates[index]!.probability).toBeGreaterThan(0);
          expect(reason).toBe(explanation.reason);
        }
      }),
      { numRuns: randomRuns(100) },
    );
  });

  test("the probabilities add up to 1, and none goes to a candidate without weight while another has one", () => {
    fc.assert(
      fc.property(candidateRows(1), request, (rows, asked) => {
        const { candidates } = explained(rows, asked);
        expect(candidates.reduce((sum, one) => sum + one.probability, 0)).toBeCloseTo(1, 9);
        const weighted = rows.some((row) => row.weight !== 0);
        for (const [i, one] of candidates.entries()) {
          expect(one.eligible).toBe(!weighted || rows[i]!.weight !== 0);
          if (!one.eligible) expect(one.probability).toBe(0);
        }
      }),
      { numRuns: randomRuns(100) },
    );
  });

  test("the order of the candidates changes nobody's probability", () => {
    fc.assert(
      fc.property(
        candidateRows(2),
        request,
        fc.array(fc.nat(), { minLength: 8, maxLength: 8 }),
        (rows, asked, keys) => {
          const shuffled = rows.map((row, i) => ({ row, key: keys[i]! })).sort((a, b) => a.key - b.key);
          const moved = byKey(
            explained(
              shuffled.map(({ row }) => row),
              asked,
            ),
          );
          for (const [key, probability] of Object.entries(byKey(explained(rows, asked)))) {
            expect(moved[key]).toBeCloseTo(probability, 9);
          }
        },
      ),
      { numRuns: randomRuns(100) },
    );
  });

  test("an explanation is plain JSON with every candidate and every signal, and explaining again says the same", () => {
    fc.assert(
      fc.property(candidateRows(1), request, (rows, asked) => {
        const policy = createPolicy(name, options);
        const candidates = candidatesOf(rows);
        const explanation = policy.explain(asked, candidates);
        expect(JSON.parse(JSON.stringify(explanation))).toEqual(explanation);
        expect(explanation.candidates.map((one) => one.key)).toEqual(rows.map((row) => row.key));
        for (const [i, one] of explanation.candidates.entries()) {
          expect(one.signals.inFlight).toBe(rows[i]!.inFlight ?? 0);
          expect(one.signals.kvUse).toBe(rows[i]!.kvUse ?? null);
        }
        expect(policy.explain(asked, candidates)).toEqual(explanation);
      }),
      { numRuns: randomRuns(100) },
    );
  });

  test("choices come as often as explain says", () => {
    const rows = [
      { key: "a", inFlight: 2, pendingPrefillTokens: 100 },
      { key: "b", inFlight: 1, weight: 2 },
      { key: "c", inFlight: 0, pendingPrefillTokens: 50, running: 3, waiting: 1, signalAgeMs: 5, inFlightAtSignal: 0 },
      { key: "d", inFlight: 0, weight: 2, pendingPrefillTokens: 50 },
      { key: "e", inFlight: 1, weight: 2 },
    ];
    if (name === "round_robin") {
      // A rotation explains one turn; over whole rounds the turns are those of the weights.
      expect(tally(createPolicy(name, options), rows, 800).byKey).toEqual({ a: 100, b: 200, c: 100, d: 200, e: 200 });
      return;
    }
    if ("no-hit-lru-weight" in options) {
      // So does an order of turns: of those that are not passed over for their requests, each has its turn.
      const { byKey: taken } = tally(createPolicy(name, options), rows, 800);
      for (const key of ["b", "d", "e"]) expect(taken[key]).toBeGreaterThan(100);
      return;
    }
    const draws = randomRuns(4_000);
    const observed = tally(createPolicy(name, options), rows, draws).byKey;
    const likely = Object.entries(byKey(explained(rows))).filter(([, probability]) => probability > 0);
    expect(likely.reduce((sum, [key]) => sum + observed[key]!, 0)).toBe(draws);
    if (likely.length === 1) return;
    const counts = likely.map(([key]) => observed[key]!);
    expect(
      chiSquareExcess(
        counts,
        likely.map(([, probability]) => probability * draws),
      ),
    ).toBeLessThan(1);
  });
});

/** Policies that look at what is learned of engines. */
const learned: readonly string[] = ["predicted_latency"];

describe.each(variants)("%s %j, when one candidate changes", (name, options) => {
  const probabilityOf = (index: number, rows: readonly CandidateRow[], asked: RequestFeatures): number =>
    createPolicy(name, options).explain(asked, candidatesOf(rows)).candidates[index]!.probability;

  test.each(["inFlight", "pendingPrefillTokens", "decodeTokens", "activeTokens", "newActiveTokens"] as const)(
    "more %s never makes it likelier",
    (column) => {
      fc.assert(
        fc.property(candidateRows(2), request, fc.nat({ max: 7 }), fc.constantFrom(1, 3), (rows, asked, pick, more) => {
          const raised = pick % rows.length;
          // Our own count at the report must be known: without it the engine's report cannot be told from our requests. So must
          // be what of the prompt is in use, for one of which it is not known is taken to need all of it.
          const known = rows.map((row) => {
            const { inFlightAtSignal = 0, newActiveTokens = 0 } = row;
            return { ...row, inFlightAtSignal, newActiveTokens };
          });
          const heavier = known.map((row, i) => (i === raised ? { ...row, [column]: (row[column] ?? 0) + more } : row));
          const before = probabilityOf(raised, known, asked);
          const after = probabilityOf(raised, heavier, asked);
          expect(after).toBeLessThanOrEqual(before + 1e-9);
        }),
        { numRuns: randomRuns(150) },
      );
    },
  );

  test.each(learned.includes(name) ? (["backlogMs", "prefillMsPerToken"] as const) : [])(
    "more %s learned never makes it likelier",
    (column) => {
      fc.assert(
        fc.property(
          candidateRows(2),
          request,
          fc.nat({ max: 7 }),
          fc.constantFrom(0.5, 60),
          (some, asked, pick, more) => {
            const rows = some.map((row) => ({ backlogMs: 40, prefillMsPerToken: 0.0625, ...row }));
            const raised = pick % rows.length;
            const slower = rows.map((row, i) => (i === raised ? { ...row, [column]: row[column] + more } : row));
            const before = probabilityOf(raised, rows, asked);
            const after = probabilityOf(raised, slower, asked);
            expect(after).toBeLessThanOrEqual(before + 1e-9);
          },
        ),
        { numRuns: randomRuns(150) },
      );
    },
  );

  test.each(["matchedTokens", "matchedCpuTokens", "matchedDiskTokens", "matchedExternalTokens"] as const)(
    "more %s never makes it less likely",
    (column) => {
      fc.assert(
        fc.property(
          candidateRows(2),
          request,
          fc.nat({ max: 7 }),
          fc.constantFrom(1, 400),
          (rows, asked, pick, more) => {
            const raised = pick % rows.length;
            const warmer = rows.map((row, i) => (i === raised ? { ...row, [column]: (row[column] ?? 0) + more } : row));
            const before = probabilityOf(raised, rows, asked);
            const after = probabilityOf(raised, warmer, asked);
            expect(after).toBeGreaterThanOrEqual(before - 1e-9);
          },
        ),
        { numRuns: randomRuns(150) },
      );
    },
  );
});

const reporting = (row: CandidateRow): CandidateRow => ({
  running: 0,
  waiting: 0,
  inFlightAtSignal: 0,
  kvUse: 0,
  kvCapacityTokens: 10_000,
  ...row,
  signalAgeMs: 0,
});

const blind = ["random", "round_robin", "consistent_hashing", "prefix_hash"];

describe.each(variants.filter(([name]) => !blind.includes(name)))("%s %j", (name, options) => {
  // A silent engine is taken to have the mean, which a report moves. By that it can move another across a threshold, such
  // as that of loads that are far apart or of near ties, or by more than the reporting one where costs are products or
  // are compared with the dearest: such rules are asked where everybody reports.
  const hasThreshold =
    ["cache_aware", "least_work", "sticky", "affinity_filter", "lmetric", "predicted_latency"].includes(name) ||
    "token-load-threshold" in options ||
    "temperature" in options;
  test.each(["running", "waiting", "kvUse", "heldTokens"] as const)(
    "more %s reported never makes it likelier",
    (column) => {
      fc.assert(
        fc.property(candidateRows(2), fc.nat({ max: 7 }), (some, pick) => {
          const rows = hasThreshold ? some.map(reporting) : some;
          const raised = pick % rows.length;
          const heavier = rows.map((row, i) =>
            i === raised ? { ...row, [column]: (row[column] ?? Number.NaN) + 1 } : row,
          );
          const before = createPolicy(name, options).explain(anyRequest, candidatesOf(rows)).candidates[raised]!
            .probability;
          const after = createPolicy(name, options).explain(anyRequest, candidatesOf(heavier)).candidates[raised]!
            .probability;
          expect(after).toBeLessThanOrEqual(before + 1e-9);
        }),
        { numRuns: randomRuns(150) },
      );
    },
  );
});
