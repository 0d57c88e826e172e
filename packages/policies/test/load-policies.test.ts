import { createPolicy } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { anyRequest, type CandidateRow, candidatesOf, chiSquareExcess, probabilities, tally } from "./helpers.ts";

/** What the explained cost of each candidate is, by key. */
function costs(name: string, rows: readonly CandidateRow[], options = {}): Record<string, number | null> {
  const explanation = createPolicy(name, options).explain(anyRequest, candidatesOf(rows));
  return Object.fromEntries(explanation.candidates.map((one) => [one.key, one.cost]));
}

const fresh = { signalAgeMs: 500, waiting: 0 };

describe("least_connections", () => {
  test("takes the fewest in flight, and equals with equal probability", () => {
    const rows = [
      { key: "a", inFlight: 3 },
      { key: "b", inFlight: 1 },
      { key: "c", inFlight: 2 },
      { key: "d", inFlight: 1 },
      { key: "e", inFlight: 1 },
    ];
    const { byKey, reasons } = tally(createPolicy("least_connections"), rows, 3_000);
    expect([byKey.a, byKey.c]).toEqual([0, 0]);
    expect(chiSquareExcess([byKey.b!, byKey.d!, byKey.e!], [1_000, 1_000, 1_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["least_load"]);
  });

  test("a weight of 2 carries twice the requests, and an idle heavy engine goes first", () => {
    const at = (a: number, b: number) => [
      { key: "a", weight: 2, inFlight: a },
      { key: "b", weight: 1, inFlight: b },
    ];
    expect(probabilities("least_connections", at(0, 0))).toEqual({ a: 1, b: 0 });
    expect(probabilities("least_connections", at(1, 0))).toEqual({ a: 0.5, b: 0.5 });
    expect(probabilities("least_connections", at(4, 1))).toEqual({ a: 0, b: 1 });
    expect(probabilities("least_connections", at(2, 1))).toEqual({ a: 1, b: 0 });
  });

  test("requests of other clients count, beyond our own at the time of the report", () => {
    const rows = [
      { key: "shared", inFlight: 5, inFlightAtSignal: 4, running: 8, ...fresh, waiting: 2 },
      { key: "ours", inFlight: 6, inFlightAtSignal: 6, running: 6, ...fresh },
    ];
    // 10 reported, 4 of them ours: 6 of others. One more was dispatched since.
    expect(costs("least_connections", rows)).toEqual({ shared: 12, ours: 7 });
  });

  test("own dispatches since the report add to it instead of hiding behind it", () => {
    const after = (dispatched: number) => [
      { key: "a", inFlight: dispatched, inFlightAtSignal: 0, running: 10, ...fresh },
      { key: "b", inFlight: 0, inFlightAtSignal: 0, running: 0, ...fresh },
    ];
    expect(costs("least_connections", after(0)).a).toBe(11);
    expect(costs("least_connections", after(5)).a).toBe(16);
  });

  test("own requests that ended since the report are not taken for others'", () => {
    const rows = [
      { key: "a", inFlight: 1, inFlightAtSignal: 6, running: 6, ...fresh },
      { key: "b", inFlight: 2, inFlightAtSignal: 2, running: 2, ...fresh },
    ];
    expect(costs("least_connections", rows)).toEqual({ a: 2, b: 3 });
  });

  test("without our own count at the report, the larger of ours and theirs counts", () => {
    const rows = [
      { key: "a", inFlight: 3, running: 5, ...fresh },
      { key: "b", inFlight: 7, running: 5, ...fresh },
    ];
    expect(costs("least_connections", rows)).toEqual({ a: 6, b: 8 });
  });

  test.each([
    ["stale", { running: 0, waiting: 0, inFlightAtSignal: 0, signalAgeMs: 2_001 }],
    ["absent", {}],
    ["partly absent", { running: 0, inFlightAtSignal: 0, signalAgeMs: 0 }],
  ])("an engine whose signals are %s is taken to have the others' mean, not zero", (_what, signals) => {
    const rows = [
      { key: "a", inFlight: 1, inFlightAtSignal: 1, running: 5, ...fresh },
      { key: "b", inFlight: 1, inFlightAtSignal: 1, running: 9, ...fresh },
      { key: "silent", inFlight: 2, ...signals },
      { key: "half", inFlight: 0, weight: 0.5, ...signals },
    ];
    // 4 and 8 foreign requests at two engines of weight 1: 6 per unit of weight.
    expect(costs("least_connections", rows)).toEqual({ a: 6, b: 10, silent: 9, half: 8 });
  });

  test("a signal of exactly 2 s still counts", () => {
    const rows = [{ key: "a", running: 4, waiting: 1, inFlightAtSignal: 0, signalAgeMs: 2_000 }, { key: "b" }];
    expect(costs("least_connections", rows).a).toBe(6);
  });
});

describe("power_of_two", () => {
  test("four engines of loads 0, 1, 2, 2: each wins the pairs in which it is lower", () => {
    const rows = [
      { key: "a", inFlight: 0 },
      { key: "b", inFlight: 1 },
      { key: "c", inFlight: 2 },
      { key: "d", inFlight: 2 },
    ];
    const explained = probabilities("power_of_two", rows);
    expect(explained.a).toBeCloseTo(3 / 6);
    expect(explained.b).toBeCloseTo(2 / 6);
    expect(explained.c).toBeCloseTo(0.5 / 6);
    const { byKey, reasons } = tally(createPolicy("power_of_two"), rows, 6_000);
    expect(chiSquareExcess(Object.values(byKey), [3_000, 2_000, 500, 500])).toBeLessThan(1);
    expect([...reasons]).toEqual(["better_of_two"]);
  });

  test("of two engines the lower always wins, so the two drawn are distinct", () => {
    const rows = [
      { key: "a", inFlight: 1 },
      { key: "b", inFlight: 0 },
    ];
    expect(tally(createPolicy("power_of_two"), rows, 200).byKey).toEqual({ a: 0, b: 200 });
  });
});

describe("least_tokens", () => {
  test("tokens decide, not requests", () => {
    const rows = [
      { key: "many-short", inFlight: 8, pendingPrefillTokens: 800, decodeTokens: 1_600 },
      { key: "one-long", inFlight: 1, pendingPrefillTokens: 30_000, decodeTokens: 0 },
    ];
    expect(probabilities("least_tokens", rows)).toEqual({ "many-short": 1, "one-long": 0 });
    // The request in hand has 500 + 100 tokens.
    expect(costs("least_tokens", rows)).toEqual({ "many-short": 3_000, "one-long": 30_600 });
  });

  test("equals share evenly, and weights divide", () => {
    const rows = [
      { key: "a", pendingPrefillTokens: 600 },
      { key: "b", weight: 2, pendingPrefillTokens: 1_800 },
      { key: "c", decodeTokens: 600 },
    ];
    expect(probabilities("least_tokens", rows)).toEqual({ a: 1 / 3, b: 1 / 3, c: 1 / 3 });
  });

  test("KV blocks beyond our own and queued requests of others count", () => {
    const rows = [
      {
        key: "a",
        inFlight: 2,
        inFlightAtSignal: 2,
        decodeTokens: 4_000,
        running: 6,
        ...fresh,
        waiting: 3,
        kvUse: 0.5,
        kvCapacityTokens: 20_000,
      },
      { key: "b", inFlightAtSignal: 0, running: 0, ...fresh, kvUse: 0, kvCapacityTokens: 20_000 },
    ];
    // 10,000 held, 4,000 ours; 7 foreign requests of which 3 wait, at 1,000 tokens each.
    expect(costs("least_tokens", rows, { "foreign-request-tokens": 1_000 })).toEqual({
      a: 4_000 + 6_000 + 3_000 + 600,
      b: 600,
    });
  });

  test("where the engine does not tell its KV use, each foreign request has the assumed weight", () => {
    const rows = [
      { key: "a", inFlightAtSignal: 1, running: 3, ...fresh },
      { key: "b", inFlightAtSignal: 1, running: 1, ...fresh },
    ];
    expect(costs("least_tokens", rows, { "foreign-request-tokens": 1_000 })).toEqual({ a: 2_600, b: 600 });
  });

  test("a dispatch of ours never lowers the cost when our count at the report was not kept", () => {
    const at = (inFlight: number, pendingPrefillTokens: number) =>
      costs("least_tokens", [
        { key: "a", inFlight, pendingPrefillTokens, running: 9, ...fresh, kvUse: 0.1, kvCapacityTokens: 10_000 },
        { key: "b" },
      ]).a;
    expect(at(1, 10)).toBe(at(0, 0)! + 10);
  });

  test("an engine without signals is taken to hold the others' mean", () => {
    const rows = [
      { key: "a", ...fresh, running: 1, inFlightAtSignal: 0, kvUse: 0.2, kvCapacityTokens: 10_000 },
      { key: "silent", pendingPrefillTokens: 5 },
    ];
    expect(costs("least_tokens", rows)).toEqual({ a: 2_600, silent: 2_605 });
  });
});

describe("random", () => {
  test("draws by weight and looks at nothing else", () => {
    const rows = [
      { key: "a", weight: 1, inFlight: 90 },
      { key: "b", weight: 3 },
      { key: "c", weight: 0 },
      { key: "d", weight: 2, running: 9, ...fresh },
    ];
    const { byKey, reasons } = tally(createPolicy("random"), rows, 6_000);
    expect(byKey.c).toBe(0);
    expect(chiSquareExcess([byKey.a!, byKey.b!, byKey.d!], [1_000, 3_000, 2_000])).toBeLessThan(1);
    expect([...reasons]).toEqual(["random"]);
  });
});
