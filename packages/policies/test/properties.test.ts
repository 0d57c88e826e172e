import { createSeededRandom } from "@espalier/common";
import { createPolicy, policyNames } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { anyRequest, byKey, type CandidateRow, candidatesOf, chiSquareExcess, inSession, tally } from "./helpers.ts";

const count = fc.integer({ min: 0, max: 6 });
const signals = fc.record(
  {
    inFlight: count,
    pendingPrefillTokens: fc.integer({ min: 0, max: 3 }).map((n) => n * 500),
    decodeTokens: fc.integer({ min: 0, max: 3 }).map((n) => n * 500),
    running: count,
    waiting: count,
    kvUse: fc.constantFrom(0, 0.5, 1),
    kvCapacityTokens: fc.constant(10_000),
    signalAgeMs: fc.constantFrom(0, 1_999, 2_500),
    inFlightAtSignal: count,
    weight: fc.constantFrom(0, 0.5, 1, 2),
  },
  { requiredKeys: [] },
);
const candidateRows = (minLength: number) =>
  fc
    .array(signals, { minLength, maxLength: 8 })
    .map((rows): CandidateRow[] => rows.map((row, i) => ({ key: `e${i}`, ...row })));
const request = fc.constantFrom(anyRequest, inSession("one"), inSession("another"), inSession("a third"));
const seed = fc.integer();

const explained = (name: string, rows: readonly CandidateRow[], asked = anyRequest) =>
  createPolicy(name).explain(asked, candidatesOf(rows));

describe.each(policyNames)("%s", (name) => {
  test("chooses a candidate that explain gives a probability, with a reason that explain names", () => {
    fc.assert(
      fc.property(candidateRows(1), request, seed, (rows, asked, from) => {
        const policy = createPolicy(name);
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
    );
  });

  test("the probabilities add up to 1, and none goes to a candidate without weight while another has one", () => {
    fc.assert(
      fc.property(candidateRows(1), request, (rows, asked) => {
        const { candidates } = explained(name, rows, asked);
        expect(candidates.reduce((sum, one) => sum + one.probability, 0)).toBeCloseTo(1, 9);
        const weighted = rows.some((row) => row.weight !== 0);
        for (const [i, one] of candidates.entries()) {
          expect(one.eligible).toBe(!weighted || rows[i]!.weight !== 0);
          if (!one.eligible) expect(one.probability).toBe(0);
        }
      }),
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
              name,
              shuffled.map(({ row }) => row),
              asked,
            ),
          );
          for (const [key, probability] of Object.entries(byKey(explained(name, rows, asked)))) {
            expect(moved[key]).toBeCloseTo(probability, 9);
          }
        },
      ),
    );
  });

  test("an explanation is plain JSON with every candidate and every signal, and explaining again says the same", () => {
    fc.assert(
      fc.property(candidateRows(1), request, (rows, asked) => {
        const policy = createPolicy(name);
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
      expect(tally(createPolicy(name), rows, 800).byKey).toEqual({ a: 100, b: 200, c: 100, d: 200, e: 200 });
      return;
    }
    const draws = 4_000;
    const observed = tally(createPolicy(name), rows, draws).byKey;
    const likely = Object.entries(byKey(explained(name, rows))).filter(([, probability]) => probability > 0);
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

  test.each(["inFlight", "pendingPrefillTokens", "decodeTokens"] as const)(
    "more %s never makes it likelier",
    (column) => {
      fc.assert(
        fc.property(candidateRows(2), request, fc.nat({ max: 7 }), fc.constantFrom(1, 3), (rows, asked, pick, more) => {
          const raised = pick % rows.length;
          // Our own count at the report must be known: without it the engine's report cannot be told from our requests.
          const known = rows.map((row) => ({ ...row, inFlightAtSignal: row.inFlightAtSignal ?? 0 }));
          const heavier = known.map((row, i) => (i === raised ? { ...row, [column]: (row[column] ?? 0) + more } : row));
          const before = explained(name, known, asked).candidates[raised]!.probability;
          const after = explained(name, heavier, asked).candidates[raised]!.probability;
          expect(after).toBeLessThanOrEqual(before + 1e-9);
        }),
        { numRuns: 300 },
      );
    },
  );
});

describe.each(["least_connections", "power_of_two", "least_tokens"])("%s", (name) => {
  test.each(["running", "waiting"] as const)("more %s reported never makes it likelier", (column) => {
    fc.assert(
      fc.property(candidateRows(2), fc.nat({ max: 7 }), (rows, pick) => {
        const raised = pick % rows.length;
        const heavier = rows.map((row, i) =>
          i === raised ? { ...row, [column]: (row[column] ?? Number.NaN) + 1 } : row,
        );
        const before = explained(name, rows).candidates[raised]!.probability;
        const after = explained(name, heavier).candidates[raised]!.probability;
        expect(after).toBeLessThanOrEqual(before + 1e-9);
      }),
      { numRuns: 300 },
    );
  });
});
