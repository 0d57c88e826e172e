/** The rule of the routers of SGLang and SMG, worked by hand: while loads are apart, then long matches, then short ones. */

import { createSeededRandom } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const prompt = ofTokens(1_000);

function decide(rows: readonly CandidateRow[], options: Readonly<Record<string, number>> = {}, request = prompt) {
  const explanation = createPolicy("cache_aware", options).explain(request, candidatesOf(rows));
  return { reason: explanation.reason, shares: byKey(explanation) };
}

/** As in SGLang 0.4. */
const toFreeCache = { "miss-to-free-cache": 1 };

describe("loads", () => {
  const at = (low: number, high: number): CandidateRow[] => [
    { key: "busy", inFlight: high, matchedTokens: 1_000 },
    { key: "quiet", inFlight: low },
    { key: "between", inFlight: low + 1 },
  ];

  test.each([
    [0, 64, "prefix_match", "busy", "64 above is not more than 64"],
    [0, 65, "imbalanced", "quiet", "65 above 0"],
    [128, 192, "prefix_match", "busy", "64 above again"],
    [130, 195, "prefix_match", "busy", "195 is 1.5 times 130 and not more"],
    [129, 194, "imbalanced", "quiet", "65 above, and more than 1.5 times 129"],
    [200, 290, "prefix_match", "busy", "90 above, but less than 1.5 times 200"],
  ] as const)("%i to %i in flight: %s, so %s: %s", (low, high, reason, key, _why) => {
    const { reason: said, shares } = decide(at(low, high));
    expect(said).toBe(reason);
    expect(shares[key]).toBe(1);
  });

  test("the thresholds are options", () => {
    const options = { "balance-abs-threshold": 2, "balance-rel-threshold": 2 };
    expect(decide(at(3, 6), options).reason).toBe("prefix_match");
    expect(decide(at(3, 7), options).reason).toBe("imbalanced");
    expect(decide(at(0, 2), options).reason).toBe("prefix_match");
    expect(decide(at(0, 3), options).reason).toBe("imbalanced");
  });

  test("an engine of weight 2 may have twice the requests before loads are apart", () => {
    const rows = (inFlight: number): CandidateRow[] => [
      { key: "heavy", weight: 2, inFlight, matchedTokens: 1_000 },
      { key: "light", inFlight: 0 },
    ];
    expect(decide(rows(128)).reason).toBe("prefix_match");
    expect(decide(rows(129)).reason).toBe("imbalanced");
  });

  test("requests of other clients count", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 1_000, running: 40, waiting: 30, inFlightAtSignal: 0, signalAgeMs: 100 },
      { key: "b", running: 0, waiting: 0, inFlightAtSignal: 0, signalAgeMs: 100 },
    ];
    expect(decide(rows)).toEqual({ reason: "imbalanced", shares: { a: 0, b: 1 } });
  });

  test("of several that are least loaded each is taken, and no other", () => {
    const rows: CandidateRow[] = [
      { key: "a", inFlight: 100, matchedTokens: 1_000 },
      { key: "b", inFlight: 3 },
      { key: "c", inFlight: 3, matchedTokens: 900 },
    ];
    const { byKey: taken, reasons } = tally(createPolicy("cache_aware"), rows, 2_000, prompt);
    expect(taken.a).toBe(0);
    expect(chiSquareExcess([taken.b!, taken.c!], [1_000, 1_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["imbalanced"]);
  });
});

describe("matches", () => {
  test.each([
    [300, "no_match", "quiet", "0.3 is not more than 0.3"],
    [301, "prefix_match", "warm", "more than 0.3"],
    [1_000, "prefix_match", "warm", "all of it"],
  ] as const)("%i of 1,000 tokens: %s", (matchedTokens, reason, key, _why) => {
    const rows: CandidateRow[] = [
      { key: "warm", matchedTokens, heldTokens: 9_000, inFlight: 5 },
      { key: "roomy", matchedTokens: 100, heldTokens: 10, inFlight: 2 },
      { key: "quiet", matchedTokens: 0, heldTokens: 9_000, inFlight: 1 },
    ];
    expect(decide(rows)).toEqual({ reason, shares: { warm: 0, roomy: 0, quiet: 0, [key]: 1 } });
  });

  test("the longest wins, however loaded while loads are not apart", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 800, inFlight: 0 },
      { key: "b", matchedTokens: 816, inFlight: 60 },
      { key: "c" },
    ];
    expect(decide(rows).shares).toEqual({ a: 0, b: 1, c: 0 });
  });

  test("of equally long ones the least loaded wins, then chance by weight", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 800, inFlight: 3 },
      { key: "b", matchedTokens: 800, inFlight: 2 },
      { key: "c", matchedTokens: 800, inFlight: 2 },
      { key: "d", matchedTokens: 400 },
    ];
    expect(decide(rows).shares).toEqual({ a: 0, b: 0.5, c: 0.5, d: 0 });
    const weighted = rows.map((row) => (row.key === "c" ? { ...row, weight: 2, inFlight: 4 } : row));
    expect(decide(weighted).shares.b).toBeCloseTo(1 / 3);
    expect(decide(weighted).shares.c).toBeCloseTo(2 / 3);
  });

  test("slower tiers count at their credit", () => {
    const rows: CandidateRow[] = [
      { key: "gpu", matchedTokens: 500 },
      { key: "tiers", matchedTokens: 100, matchedCpuTokens: 400, matchedDiskTokens: 400, matchedExternalTokens: 100 },
    ];
    // 100 + 0.75 x 400 + 0.25 x 400 + 0.5 x 100 = 550 tokens.
    expect(decide(rows).shares).toEqual({ gpu: 0, tiers: 1 });
    expect(decide(rows, { "external-credit": 0 }).shares).toEqual({ gpu: 0.5, tiers: 0.5 });
    expect(decide(rows, { "cpu-credit": 0 }).shares).toEqual({ gpu: 1, tiers: 0 });
  });

  test("a match beyond the prompt is all of it, and no match counts for a prompt of unknown length", () => {
    const rows: CandidateRow[] = [
      { key: "a", matchedTokens: 800, matchedCpuTokens: 900, inFlight: 1 },
      { key: "b", matchedTokens: 1_000 },
    ];
    expect(decide(rows).shares).toEqual({ a: 0, b: 1 });
    expect(decide(rows, {}, ofTokens(0))).toEqual({ reason: "no_match", shares: { a: 0, b: 1 } });
    expect(decide(rows, toFreeCache, ofTokens(0)).reason).toBe("most_free_cache");
  });
});

describe("without a match that decides", () => {
  // lightseekorg/smg@73da68ca, model_gateway/src/policies/cache_aware.rs, `test_event_driven_no_overlap_uses_min_load` and
  // `test_score_overlap_load_tiebreak`: three requests at the first worker; a block that both have, ten at the first.
  test("the least loaded takes it, as in SMG, however full its cache, equals by weight", () => {
    const rows: CandidateRow[] = [
      { key: "w1", inFlight: 3, heldTokens: 4 },
      { key: "w2", inFlight: 0, heldTokens: 9_000 },
    ];
    expect(decide(rows)).toEqual({ reason: "no_match", shares: { w1: 0, w2: 1 } });
    const both = rows.map((row) => ({ ...row, matchedTokens: 1_000, inFlight: row.inFlight === 3 ? 10 : 0 }));
    expect(decide(both)).toEqual({ reason: "prefix_match", shares: { w1: 0, w2: 1 } });
    const equal: CandidateRow[] = [{ key: "a" }, { key: "b", weight: 3 }];
    expect(decide(equal).shares).toEqual({ a: 0.25, b: 0.75 });
  });

  test("an option sends it where the cache holds least, as in SGLang 0.4", () => {
    const rows: CandidateRow[] = [
      { key: "busy", inFlight: 9, heldTokens: 10 },
      { key: "idle", heldTokens: 20 },
    ];
    expect(decide(rows, toFreeCache)).toEqual({ reason: "most_free_cache", shares: { busy: 1, idle: 0 } });
  });
});

describe("room", () => {
  test("the least held for the weight wins, then the least loaded, then chance", () => {
    const rows: CandidateRow[] = [
      { key: "a", heldTokens: 5_000 },
      { key: "b", heldTokens: 4_000, inFlight: 9 },
      { key: "c", heldTokens: 8_000, weight: 2, inFlight: 0 },
      { key: "d", heldTokens: 4_000, inFlight: 0 },
    ];
    // C holds 4,000 per unit of weight.
    const { reason, shares } = decide(rows, toFreeCache);
    expect(reason).toBe("most_free_cache");
    expect([shares.a, shares.b]).toEqual([0, 0]);
    expect(shares.c).toBeCloseTo(2 / 3);
    expect(shares.d).toBeCloseTo(1 / 3);
  });

  test("who does not tell is taken to hold the mean, not nothing", () => {
    const rows: CandidateRow[] = [
      { key: "full", heldTokens: 9_000 },
      { key: "empty", heldTokens: 1_000 },
      { key: "?" },
    ];
    expect(decide(rows, toFreeCache).shares).toEqual({ full: 0, empty: 1, "?": 0 });
    expect(decide([rows[0]!, rows[2]!], toFreeCache).shares).toEqual({ full: 0.5, "?": 0.5 });
  });

  test("where nobody tells, the least loaded wins", () => {
    const rows: CandidateRow[] = [
      { key: "a", inFlight: 2 },
      { key: "b", inFlight: 1 },
      { key: "c", inFlight: 7 },
    ];
    expect(decide(rows, toFreeCache)).toEqual({ reason: "most_free_cache", shares: { a: 0, b: 1, c: 0 } });
  });
});

test("explain shows the three things that it looks at, whichever of them decides", () => {
  const rows: CandidateRow[] = [
    { key: "a", inFlight: 4, weight: 2, matchedTokens: 250, heldTokens: 3_000 },
    { key: "b", inFlight: 1 },
  ];
  const terms = (inFlight: number) =>
    createPolicy("cache_aware")
      .explain(prompt, candidatesOf([...rows, { key: "c", inFlight, matchedTokens: 0, heldTokens: 500 }]))
      .candidates.map((one) => one.terms);
  expect(terms(0)).toEqual([
    { load: 2, match_share: 0.25, held_tokens: 1_500 },
    { load: 1, match_share: 0, held_tokens: 3_500 / 3 },
    { load: 0, match_share: 0, held_tokens: 500 },
  ]);
  expect(terms(300).map((one) => one.match_share)).toEqual([0.25, 0, 0]);
  expect(terms(300).map((one) => one.held_tokens)).toEqual([1_500, 3_500 / 3, 500]);
});

test("decides as the rule written down plainly does", () => {
  const rows = fc.array(
    fc.record({
      inFlight: fc.integer({ min: 0, max: 12 }),
      matchedTokens: fc.constantFrom(0, 100, 300, 400, 1_000),
      heldTokens: fc.constantFrom(0, 100, 2_000),
    }),
    { minLength: 2, maxLength: 7 },
  );
  const options = { "balance-abs-threshold": 4, "balance-rel-threshold": 2, "cache-threshold": 0.3 };
  const random = createSeededRandom(4);
  const policies = [0, 1].map((miss) => createPolicy("cache_aware", { ...options, "miss-to-free-cache": miss }));
  fc.assert(
    fc.property(rows, fc.constantFrom(0, 1), (values, miss) => {
      const loads = values.map((row) => row.inFlight);
      const [low, high] = [Math.min(...loads), Math.max(...loads)];
      const longest = Math.max(...values.map((row) => row.matchedTokens));
      const least = Math.min(...values.map((row) => row.heldTokens));
      const apart = high - low > 4 && high > 2 * low;
      const matched = longest / 1_000 > 0.3;
      const fit = values.filter((row) =>
        apart || (!matched && miss === 0)
          ? row.inFlight === low
          : matched
            ? row.matchedTokens === longest
            : row.heldTokens === least,
      );
      const best = Math.min(...fit.map((row) => row.inFlight));
      const { index, reason } = policies[miss]!.choose(
        prompt,
        candidatesOf(values.map((row, i) => ({ key: `e${i}`, ...row }))),
        random,
      );
      expect(reason).toBe(apart ? "imbalanced" : matched ? "prefix_match" : ["no_match", "most_free_cache"][miss]);
      expect(fit).toContain(values[index]);
      expect(values[index]!.inFlight).toBe(best);
    }),
    { numRuns: randomRuns(500) },
  );
});
