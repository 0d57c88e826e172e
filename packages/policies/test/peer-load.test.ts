import { createSeededRandom } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, idleRows, ofTokens, tally } from "./helpers.ts";

const policy = createPolicy("least_work");
const among = (estimatedPeerTokens: number, promptTokens = 2_000) => ({
  ...ofTokens(promptTokens),
  estimatedPeerTokens,
});
const shares = (rows: readonly CandidateRow[], estimatedPeerTokens: number, promptTokens = 2_000) =>
  byKey(policy.explain(among(estimatedPeerTokens, promptTokens), candidatesOf(rows)));

describe("without work of others that is not reported yet", () => {
  test("the least loaded of equals is taken, as one router does", () => {
    const rows: CandidateRow[] = [
      { key: "a", inFlight: 1 },
      { key: "b", inFlight: 2 },
      { key: "c", inFlight: 3 },
    ];
    expect(shares(rows, 0)).toEqual({ a: 1, b: 0, c: 0 });
    expect(byKey(policy.explain(ofTokens(2_000), candidatesOf(rows)))).toEqual({ a: 1, b: 0, c: 0 });
  });
});

describe("with it", () => {
  test("a cold prompt is drawn in proportion to what engines are below the level that it fills", () => {
    // Two requests here, three there; one is 16 tokens: 48 and 64 high. 200 of others fill both to 156.
    const rows: CandidateRow[] = [
      { key: "idle", inFlight: 2 },
      { key: "busy", inFlight: 3 },
    ];
    const { idle = 0, busy = 0 } = shares(rows, 200);
    expect(idle).toBeCloseTo(108 / 200, 10);
    expect(busy).toBeCloseTo(92 / 200, 10);
  });

  test("little of it leaves the emptier one, much of it makes all alike", () => {
    const rows: CandidateRow[] = [{ key: "a" }, { key: "b", pendingPrefillTokens: 500 }];
    expect(shares(rows, 100)).toEqual({ a: 1, b: 0 });
    const { a = 0 } = shares(rows, 100_000);
    expect(a).toBeGreaterThan(0.5);
    expect(a).toBeLessThan(0.51);
  });

  test("among equals those of this router come first, the least loaded of them; without any, all are drawn", () => {
    const rows: CandidateRow[] = [
      { key: "other" },
      { key: "mine", own: 1, inFlight: 3 },
      { key: "mine too", own: 1, inFlight: 2 },
      { key: "mine as well", own: 1, inFlight: 2 },
      { key: "mine but busy", own: 1, pendingPrefillTokens: 50_000 },
    ];
    const expected = { other: 0, mine: 0, "mine too": 0.5, "mine as well": 0.5, "mine but busy": 0 };
    expect(shares(rows, 1_000)).toEqual(expected);
    const { byKey: drawn } = tally(policy, rows, 4_000, among(1_000));
    expect(drawn.other).toBe(0);
    expect(chiSquareExcess([drawn["mine too"] ?? 0, drawn["mine as well"] ?? 0], [2_000, 2_000])).toBeLessThan(1);
    expect(shares(rows, 0)).toEqual({ other: 1, mine: 0, "mine too": 0, "mine as well": 0, "mine but busy": 0 });
    const others = rows.map((row) => ({ ...row, own: 0 }));
    expect(shares(others, 1_000).other).toBeGreaterThan(0.2);
  });

  test("an engine that holds the prompt stays the best: others have no more reason to go there than elsewhere", () => {
    const holder: CandidateRow = { key: "holder", matchedTokens: 1_600 };
    for (const estimatedPeerTokens of [1, 100, 5_000, 1e6]) {
      expect(shares([holder, ...idleRows(20)], estimatedPeerTokens).holder, `${estimatedPeerTokens} unseen`).toBe(1);
    }
    const busy = { ...holder, pendingPrefillTokens: 3_000 };
    expect(shares([busy, ...idleRows(20)], 1_000).holder).toBe(0);
  });

  test("the draw is as explained", () => {
    const rows = Array.from(
      { length: 12 },
      (_, at): CandidateRow => ({ key: `e${at}`, pendingPrefillTokens: 30 * at }),
    );
    const draws = 20_000;
    const expected = shares(rows, 900);
    const { byKey: drawn, reasons } = tally(policy, rows, draws, among(900));
    const keys = rows.map(({ key }) => key).filter((key) => (expected[key] ?? 0) > 0);
    const counts = keys.map((key) => drawn[key] ?? 0);
    expect(counts.reduce((total, count) => total + count, 0)).toBe(draws);
    expect(
      chiSquareExcess(
        counts,
        keys.map((key) => draws * (expected[key] ?? 0)),
      ),
    ).toBeLessThan(1);
    expect([...reasons]).toEqual(["least_work"]);
  });

  test("probabilities add up to 1, fall with load, and never go to an engine above the level", () => {
    const row = fc.record({ pendingPrefillTokens: fc.nat(5_000), inFlight: fc.nat(30) });
    fc.assert(
      fc.property(
        fc.array(row, { minLength: 2, maxLength: 40 }),
        fc.integer({ min: 65, max: 50_000 }),
        (rows, estimatedPeerTokens) => {
          const named = rows.map((one, at) => ({ key: `e${at}`, ...one }));
          const probability = shares(named, estimatedPeerTokens);
          const sum = Object.values(probability).reduce((total, one) => total + one, 0);
          expect(sum).toBeCloseTo(1, 9);
          for (const one of named) {
            for (const other of named) {
              const isLess = one.pendingPrefillTokens <= other.pendingPrefillTokens && one.inFlight <= other.inFlight;
              if (isLess) expect(probability[one.key]).toBeGreaterThanOrEqual((probability[other.key] ?? 0) - 1e-9);
            }
          }
        },
      ),
      { numRuns: randomRuns(200), seed: 11 },
    );
  });

  test("eight routers that all see the same send eight prompts to nearly as many engines, not to one", () => {
    const random = createSeededRandom(5);
    const rows = idleRows(64).map((one, at) => ({ ...one, inFlight: at % 8 }));
    const candidates = candidatesOf(rows);
    let distinct = 0;
    for (let round = 0; round < 200; round++) {
      const chosen = new Set(Array.from({ length: 8 }, () => policy.choose(among(14_000), candidates, random).target));
      distinct += chosen.size;
    }
    expect(distinct / 200).toBeGreaterThan(7);
  });
});

describe("prompts that are cold from the same place on", () => {
  const random = createSeededRandom(3);
  const chosen = (rows: readonly CandidateRow[], coldKey: number, estimatedPeerTokens = 14_000): string => {
    const candidates = candidatesOf(rows);
    const request = { ...among(estimatedPeerTokens), coldKey };
    const { index } = policy.choose(request, candidates, random);
    const key = rows[index]?.key ?? "";
    expect(byKey(policy.explain(request, candidates))[key], "as explained").toBe(1);
    return key;
  };

  test("meet at one of the equals, whatever order and loads below the level a router sees", () => {
    const rows = idleRows(16);
    for (let coldKey = 1; coldKey <= 50; coldKey++) {
      const place = chosen(rows, coldKey);
      expect(chosen([...rows].reverse(), coldKey)).toBe(place);
      expect(chosen(rows, coldKey, 0), "of equals, when nothing is unseen").toBe(place);
      expect(
        chosen(
          rows.map((row, at) => ({ ...row, pendingPrefillTokens: at, inFlight: at % 5 })),
          coldKey,
        ),
      ).toBe(place);
      expect(
        chosen(
          rows.filter((_row, at) => at % 2 === 0 || rows[at]?.key === place),
          coldKey,
        ),
      ).toBe(place);
    }
  });

  test("spread where they have nothing in common", () => {
    const rows = idleRows(16);
    const counts = new Map<string, number>();
    for (let coldKey = 0; coldKey < 8_000; coldKey++) {
      const place = chosen(rows, (coldKey * 2_654_435_761) >>> 0);
      counts.set(place, (counts.get(place) ?? 0) + 1);
    }
    expect(
      chiSquareExcess(
        [...counts.values()],
        rows.map(() => 500),
      ),
    ).toBeLessThan(1);
  });

  test("do not meet at an engine above the level, nor away from one that holds more of the prompt", () => {
    const busy = (row: CandidateRow, at: number) => ({ ...row, pendingPrefillTokens: at === 0 ? 0 : 50_000 });
    const held = (row: CandidateRow, at: number) => ({ ...row, matchedTokens: at === 3 ? 1_600 : 0 });
    for (let coldKey = 1; coldKey <= 50; coldKey++) {
      expect(chosen(idleRows(8).map(busy), coldKey)).toBe(idleRows(8)[0]?.key);
      expect(chosen(idleRows(8).map(held), coldKey)).toBe(idleRows(8)[3]?.key);
    }
  });
});
