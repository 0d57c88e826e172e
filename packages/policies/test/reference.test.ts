/**
 * The stateful and the estimating parts against the plainest code that does the same: a ring made anew for each
 * decision, the textbook rotation, and loads added up one candidate at a time.
 */
import { createSeededRandom } from "@espalier/core";
import { createPolicy, hashString } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { anyRequest, byKey, type CandidateRow, candidatesOf, inSession } from "./helpers.ts";

const random = createSeededRandom(17);

/** The key whose engine a ring of these rows, made from nothing, gives to a session. */
function plainRing(
  rows: readonly CandidateRow[],
  session: string,
  loadFactor: number,
  pointsPerWeight: number,
): string {
  const weightOf = (row: CandidateRow): number => row.weight ?? 1;
  const points = rows.flatMap((row) =>
    Array.from({ length: Math.max(1, Math.round(weightOf(row) * pointsPerWeight)) }, (_, number) => ({
      hash: hashString(row.key, number),
      row,
    })),
  );
  points.sort((a, b) => a.hash - b.hash || (a.row.key < b.row.key ? -1 : 1));
  const place = hashString(session, 0x5e551047);
  const clockwise = [...points.filter((point) => point.hash >= place), ...points.filter((point) => point.hash < place)];
  const total = rows.reduce((sum, row) => sum + (row.inFlight ?? 0), 0);
  const totalWeight = rows.reduce((sum, row) => sum + weightOf(row), 0);
  const hasRoom = (row: CandidateRow): boolean =>
    loadFactor === 0 || (row.inFlight ?? 0) < Math.ceil(((loadFactor * (total + 1)) / totalWeight) * weightOf(row));
  return clockwise.find((point) => hasRoom(point.row))!.row.key;
}

const pools = fc.array(
  fc.uniqueArray(
    fc.record({
      key: fc.constantFrom("a", "b", "c", "d", "e", "f", "g"),
      weight: fc.constantFrom(0.25, 0.5, 1, 1.5, 3),
      inFlight: fc.integer({ min: 0, max: 9 }),
    }),
    { selector: (row) => row.key, minLength: 2, maxLength: 7 },
  ),
  { minLength: 1, maxLength: 6 },
);

describe.each([0, 1, 1.25, 2])("a ring with load factor %d", (loadFactor) => {
  test("that lives through changes of its engines decides as one made anew", () => {
    fc.assert(
      fc.property(pools, fc.array(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 5 }), (history, sessions) => {
        const policy = createPolicy("consistent_hashing", { "load-factor": loadFactor, "points-per-weight": 20 });
        for (const rows of history) {
          const candidates = candidatesOf(rows);
          for (const session of sessions) {
            const { index } = policy.choose(inSession(session), candidates, random);
            expect(candidates.key[index]).toBe(plainRing(rows, session, loadFactor, 20));
          }
        }
      }),
    );
  });
});

test("a session whose engine is full goes to the engine it would have if that one were absent", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), fc.integer({ min: 3, max: 12 }), (session, count) => {
      const rows = Array.from({ length: count }, (_, i) => ({ key: `e${i}` }));
      const policy = createPolicy("consistent_hashing");
      const home = policy.choose(inSession(session), candidatesOf(rows), random).index;
      const full = rows.map((row, i) => ({ ...row, inFlight: i === home ? 50 : 0 }));
      const absent = rows.filter((_, i) => i !== home);
      const overflow = policy.choose(inSession(session), candidatesOf(full), random).index;
      const fallback = policy.choose(inSession(session), candidatesOf(absent), random).index;
      expect(full[overflow]!.key).toBe(absent[fallback]!.key);
    }),
  );
});

describe("rotation", () => {
  const weights = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 2, maxLength: 8 });
  const rowsOf = (values: readonly number[]) => values.map((weight, i) => ({ key: `e${i}`, weight }));

  test("a round of as many turns as there is weight gives each its weight, and every round is the same", () => {
    fc.assert(
      fc.property(weights, (values) => {
        const policy = createPolicy("round_robin");
        const candidates = candidatesOf(rowsOf(values));
        const turns = values.reduce((sum, weight) => sum + weight, 0);
        const round = () => Array.from({ length: turns }, () => policy.choose(anyRequest, candidates, random).index);
        const first = round();
        for (const [i, weight] of values.entries()) expect(first.filter((index) => index === i)).toHaveLength(weight);
        expect(round()).toEqual(first);
      }),
    );
  });

  test("at no moment is anybody ahead of its share or behind it by as many turns as there are candidates", () => {
    fc.assert(
      fc.property(weights, (values) => {
        const policy = createPolicy("round_robin");
        const candidates = candidatesOf(rowsOf(values));
        const total = values.reduce((sum, weight) => sum + weight, 0);
        const had = values.map(() => 0);
        for (let turn = 1; turn <= 2 * total; turn++) {
          had[policy.choose(anyRequest, candidates, random).index]! += 1;
          for (const [i, weight] of values.entries()) {
            expect(Math.abs(had[i]! - (turn * weight) / total)).toBeLessThan(values.length);
          }
        }
      }),
    );
  });

  test("takes what the textbook takes where no two are equal", () => {
    const values = [13, 7, 5, 2];
    const credit = values.map(() => 0);
    const total = 27;
    const policy = createPolicy("round_robin");
    const candidates = candidatesOf(rowsOf(values));
    for (let turn = 0; turn < 2 * total; turn++) {
      for (const [i, weight] of values.entries()) credit[i]! += weight;
      const richest = Math.max(...credit);
      const { index } = policy.choose(anyRequest, candidates, random);
      expect(credit[index]).toBe(richest);
      credit[index]! -= total;
    }
    expect(credit).toEqual([0, 0, 0, 0]);
  });
});

describe("requests at an engine", () => {
  const rows = fc.array(
    fc.record({
      inFlight: fc.integer({ min: 0, max: 20 }),
      inFlightAtSignal: fc.constantFrom(0, 3, 10, Number.NaN),
      running: fc.constantFrom(0, 4, 12, Number.NaN),
      waiting: fc.constantFrom(0, 5, Number.NaN),
      signalAgeMs: fc.constantFrom(0, 2_000, 2_000.5, 60_000, Number.NaN),
      weight: fc.constantFrom(0.5, 1, 4),
    }),
    { minLength: 2, maxLength: 6 },
  );

  test("are ours and those of others, where a silent engine has the mean of the others", () => {
    fc.assert(
      fc.property(rows, (values) => {
        const foreign = values.map((row) => {
          if (!(row.signalAgeMs <= 2_000)) return Number.NaN;
          const ours = Number.isNaN(row.inFlightAtSignal) ? row.inFlight : row.inFlightAtSignal;
          return Math.max(0, row.running + row.waiting - ours);
        });
        const known = foreign.flatMap((load, i) => (Number.isNaN(load) ? [] : [{ load, weight: values[i]!.weight }]));
        const weight = known.reduce((sum, one) => sum + one.weight, 0);
        const mean = known.length === 0 ? 0 : known.reduce((sum, one) => sum + one.load, 0) / weight;
        const expected = values.map((row, i) => {
          const others = Number.isNaN(foreign[i]!) ? mean * row.weight : foreign[i]!;
          return (row.inFlight + others + 1) / row.weight;
        });
        const named = values.map((row, i) => ({ key: `e${i}`, ...row }));
        const { candidates } = createPolicy("least_connections").explain(anyRequest, candidatesOf(named));
        for (const [i, one] of candidates.entries()) expect(one.cost).toBeCloseTo(expected[i]!, 9);
      }),
    );
  });

  test("scaling every weight alike changes no decision", () => {
    fc.assert(
      fc.property(
        rows,
        fc.constantFrom("least_connections", "power_of_two", "random", "round_robin"),
        (values, name) => {
          const at = (scale: number) =>
            byKey(
              createPolicy(name).explain(
                anyRequest,
                candidatesOf(values.map((row, i) => ({ key: `e${i}`, ...row, weight: row.weight * scale }))),
              ),
            );
          const scaled = at(4);
          for (const [key, probability] of Object.entries(at(1))) expect(scaled[key]).toBeCloseTo(probability, 9);
        },
      ),
    );
  });
});
