import { readFileSync } from "node:fs";
import { createPolicy, type RequestFeatures } from "@espalier/policies";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

/** 4,000 tokens of a prompt, a tenth of a millisecond each. */
const prompt: RequestFeatures = ofTokens(4_000);
const learned = { backlogMs: 0, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0 };

function explain(rows: readonly CandidateRow[], request = prompt, options: Readonly<Record<string, number>> = {}) {
  const known = rows.map(({ key, ...row }) => ({ key, ...learned, ...row }));
  return createPolicy("predicted_latency", options).explain(request, candidatesOf(known));
}
const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
/** Without what the requests in flight and the one in hand cost, a millisecond each. */
const costs = (...args: Parameters<typeof explain>) =>
  Object.fromEntries(explain(...args).candidates.map(({ key, cost, terms }) => [key, cost! - terms.requests!]));
const termsOf = (...args: Parameters<typeof explain>) =>
  Object.fromEntries(explain(...args).candidates.map(({ key, terms }) => [key, terms]));

test("a worked example: the time until the first token, and what that costs others", () => {
  const rows: CandidateRow[] = [
    // 300 ms are to be computed before; of the prompt 1,000 tokens are left, 100 ms.
    { key: "warm", backlogMs: 300, matchedTokens: 3_000 },
    { key: "cold", backlogMs: 20 },
    // Twice as slow: 800 ms.
    { key: "slow", prefillMsPerToken: 0.2 },
  ];
  // Where engines are idle: 300 + 100, 20 + 400, 0 + 800.
  expect(costs(rows)).toEqual({ warm: 400, cold: 420, slow: 800 });
  // Where three are busy for four fifths of the time each millisecond costs others 0.8^1.83 / 0.2 = 3.32 besides.
  const dear = costs(rows, { ...prompt, busyShare: 0.8 });
  expect(dear.warm).toBeCloseTo(300 + 4.325 * 100, 0);
  expect(dear.cold).toBeCloseTo(20 + 4.325 * 400, 0);
  expect(dear.slow).toBeCloseTo(4.325 * 800, -1);
  expect(shares(rows)).toEqual({ warm: 1, cold: 0, slow: 0 });
  expect(explain(rows).reason).toBe("least_time");
});

test("the guide to misroutes explains each term of the cost", () => {
  const guide = readFileSync(new URL("../../../docs/guides/debug-a-misroute.md", import.meta.url), "utf8");
  const explained = [...guide.matchAll(/^\| `(\w+)` \| .+ \|$/gm)].map(([, name]) => name);
  const terms = Object.keys(termsOf([{ key: "a" }, { key: "b" }]).a!);
  expect(explained).toEqual(terms);
});

describe("own work", () => {
  test("affinity grows with load: a cold engine is taken while time is cheap, and the warm one when it is dear", () => {
    const rows: CandidateRow[] = [{ key: "warm", backlogMs: 500, matchedTokens: 4_000 }, { key: "cold" }];
    expect(shares(rows)).toEqual({ warm: 0, cold: 1 });
    expect(shares(rows, { ...prompt, busyShare: 0.7 })).toEqual({ warm: 1, cold: 0 });
  });

  test("tokens that are attended to count, those in the cache as well", () => {
    const rows: CandidateRow[] = [
      { key: "none", prefillMsPerTokenPair: 1e-5 },
      { key: "half", prefillMsPerTokenPair: 1e-5, matchedTokens: 2_000 },
    ];
    const { none = 0, half = 0 } = costs(rows);
    expect(none).toBeCloseTo(400 + 4_000 * 2_000 * 1e-5, 9);
    expect(half).toBeCloseTo(200 + 2_000 * 3_000 * 1e-5, 9);
  });

  test("slower tiers save less, and the last token is always computed", () => {
    const rows: CandidateRow[] = [
      { key: "cpu", matchedCpuTokens: 1_000 },
      { key: "disk", matchedDiskTokens: 1_000 },
      { key: "external", matchedExternalTokens: 1_000 },
      { key: "all", matchedTokens: 9_000 },
    ];
    expect(costs(rows)).toEqual({ cpu: 325, disk: 375, external: 350, all: expect.closeTo(0.1, 9) });
    const options = { "cpu-credit": 1, "disk-credit": 0, "external-credit": 0.9 };
    expect(costs(rows, prompt, options)).toEqual({ cpu: 300, disk: 400, external: 310, all: expect.closeTo(0.1, 9) });
  });

  test("what is learned of bringing tokens back counts in place of credits, tier by tier", () => {
    const tiers = { matchedCpuTokens: 1_000, matchedDiskTokens: 1_000, matchedExternalTokens: 1_000 };
    const rows: CandidateRow[] = [
      { key: "believed", ...tiers },
      { key: "cpu", ...tiers, cpuFetchMsPerToken: 0.003 },
      { key: "all", ...tiers, cpuFetchMsPerToken: 0.003, diskFetchMsPerToken: 0.5, externalFetchMsPerToken: 0 },
      { key: "gpu", matchedTokens: 3_000, cpuFetchMsPerToken: 9 },
    ];
    const fetches = (options = {}) => Object.values(termsOf(rows, prompt, options)).map((terms) => terms.fetch_ms);
    expect(fetches()).toEqual([25 + 75 + 50, 3 + 75 + 50, 3 + 500, 0]);
    // The credits are what is believed of tiers of which nothing is known.
    expect(fetches({ "cpu-credit": 0, "disk-credit": 1 })).toEqual([100 + 50, 3 + 50, 3 + 500, 0]);
    // Computing is the same for all of them, and that alone grows dear where engines are busy.
    const busy = { ...prompt, busyShare: 0.8 };
    for (const request of [prompt, busy]) {
      const terms = Object.values(termsOf(rows, request));
      expect(new Set(terms.map(({ own_work_ms }) => own_work_ms)).size).toBe(1);
      expect(terms.map(({ fetch_ms }) => fetch_ms)).toEqual(fetches());
    }
  });

  test("a link that is slower than computing is not worth its tokens", () => {
    const rows: CandidateRow[] = [
      { key: "holder", matchedCpuTokens: 3_000, cpuFetchMsPerToken: 0.2, inFlight: 3 },
      { key: "empty" },
    ];
    expect(shares(rows)).toEqual({ holder: 0, empty: 1 });
    expect(shares(rows.map((row) => ({ ...row, cpuFetchMsPerToken: 0.01 })))).toEqual({ holder: 1, empty: 0 });
  });

  test("tokens that are fetched are attended to like others", () => {
    const pair = { prefillMsPerTokenPair: 1e-5 };
    const rows: CandidateRow[] = [{ key: "cpu", ...pair, matchedCpuTokens: 2_000, cpuFetchMsPerToken: 0.05 }];
    expect(termsOf(rows).cpu!.own_work_ms).toBeCloseTo(200 + 2_000 * 3_000 * 1e-5, 9);
  });

  test("each answer under way slows it by one in a hundred, and each request costs a millisecond", () => {
    const rows: CandidateRow[] = [
      { key: "a", inFlight: 40, answers: 25 },
      { key: "b", answers: 25 },
    ];
    expect(costs(rows)).toEqual({ a: 500, b: 500 });
    expect(explain(rows).candidates.map(({ cost }) => cost)).toEqual([541, 501]);
  });

  test("requests without a first token stall nobody", () => {
    expect(costs([{ key: "a", inFlight: 25 }, { key: "b" }])).toEqual({ a: 400, b: 400 });
  });

  test("a prompt of many seconds holds up answers for longer, up to ten times as long", () => {
    const rows = (prefillMsPerToken: number): CandidateRow[] => [{ key: "a", answers: 10, prefillMsPerToken }];
    const share = (prefillMsPerToken: number): number =>
      costs(rows(prefillMsPerToken)).a! / (4_000 * prefillMsPerToken) - 1;
    expect([0.1, 0.5, 1, 5, 50].map((ms) => Math.round(1e6 * share(ms)) / 1e6)).toEqual([0.1, 0.1, 0.2, 1, 1]);
  });

  test("answers beyond the mean of the engines count up to fifty times more, as engines have time left", () => {
    const rows: CandidateRow[] = [
      { key: "many", answers: 30 },
      { key: "few", answers: 10 },
    ];
    const differenceOf = (request: Partial<RequestFeatures>): number => {
      const { many, few } = costs(rows, { ...prompt, ...request });
      return many! - few!;
    };
    expect(differenceOf({})).toBeCloseTo(80 + 10 * 200, 6);
    expect(differenceOf({ busyShare: 0.5 })).toBeCloseTo(80 + (10 * 200) / 16, 6);
    // More than all of the prompt's time is nobody's delay.
    expect(differenceOf({ sloTpotMs: 5 })).toBeCloseTo(800 + 10 * 400, 6);
  });

  test("the stricter the objective for the time per token, the more answers beside a prompt count", () => {
    const rows: CandidateRow[] = [{ key: "a", answers: 25 }];
    const of = (sloTpotMs: number | undefined) => termsOf(rows, { ...prompt, sloTpotMs }).a!.own_work_ms;
    expect([Number.POSITIVE_INFINITY, 100, 50, undefined, 10].map(of)).toEqual([400, 450, 500, 500, 900]);
  });

  test("an engine of weight 2 counts for half", () => {
    expect(costs([{ key: "a", weight: 2, backlogMs: 60 }, { key: "b" }])).toEqual({ a: 230, b: 400 });
  });
});

test("as long as nothing is learned, 8,000 tokens a second are believed, of what is pending too", () => {
  const rows = [{ key: "a", pendingPrefillTokens: 800, matchedTokens: 2_400 }, { key: "b" }];
  const { candidates } = createPolicy("predicted_latency").explain(prompt, candidatesOf(rows));
  expect(candidates.map(({ cost }) => cost)).toEqual([100 + 200 + 1, 500 + 1]);
});

test("queued requests of other clients take their time", () => {
  const fresh = { signalAgeMs: 100, inFlightAtSignal: 2, inFlight: 0, running: 10 };
  const rows: CandidateRow[] = [
    { key: "queue", ...fresh, waiting: 3 },
    { key: "batch", ...fresh, waiting: 0 },
  ];
  expect(costs(rows, prompt, { "foreign-request-tokens": 100 })).toEqual({ queue: 430, batch: 400 });
});

test("a LoRA adapter that has to be loaded costs its load", () => {
  const rows: CandidateRow[] = [
    { key: "none", adapterState: 0 },
    { key: "room", adapterState: 2 },
    { key: "active", adapterState: 3 },
  ];
  expect(costs(rows, { ...prompt, adapter: "sql" })).toEqual({ none: 656, room: 528, active: 400 });
  expect(costs(rows)).toEqual({ none: 400, room: 400, active: 400 });
});

describe("near ties", () => {
  const rows: CandidateRow[] = [
    { key: "a", backlogMs: 0, weight: 1 },
    { key: "b", backlogMs: 8 },
    { key: "c", backlogMs: 8.01 },
  ];

  test("within eight milliseconds chance decides between those with as few requests", () => {
    expect(shares(rows)).toEqual({ a: 0.5, b: 0.5, c: 0 });
    const known = rows.map(({ key, ...row }) => ({ key, ...learned, ...row }));
    const { byKey: taken, reasons } = tally(createPolicy("predicted_latency"), known, 2_000, prompt);
    expect(chiSquareExcess([taken.a!, taken.b!], [1_000, 1_000])).toBeLessThan(1);
    expect(taken.c).toBe(0);
    expect([...reasons]).toEqual(["least_time"]);
  });

  test("fewer requests decide before it, but for what they slow the prompt by", () => {
    // One request more slows 10 tokens of a tenth of a millisecond by nothing that counts.
    const few = ofTokens(10);
    expect(shares([{ key: "a", inFlight: 1 }, { key: "b" }], few)).toEqual({ a: 0, b: 1 });
  });
});

describe("estimated load of other routers", () => {
  const rows: CandidateRow[] = [
    { key: "idle", backlogMs: 10 },
    { key: "busy", backlogMs: 30 },
  ];
  const among = (estimatedPeerTokens: number) => ({ ...prompt, estimatedPeerTokens });

  test("fills engines evenly, in milliseconds: a prompt is drawn by what each is below the level", () => {
    // 1,000 tokens are 100 ms, which fill both to 70: 60 and 40 are below it, a request of each counted in.
    const { idle, busy } = shares(rows, among(1_000));
    expect(idle).toBeCloseTo(0.6, 9);
    expect(busy).toBeCloseTo(0.4, 9);
    expect(shares(rows, among(0))).toEqual({ idle: 1, busy: 0 });
    expect(shares(rows, among(100))).toEqual({ idle: 1, busy: 0 });
  });

  test("is the mean candidate's, whatever the order of candidates", () => {
    const mixed: CandidateRow[] = [
      { key: "fast", prefillMsPerToken: 0.1, matchedTokens: 4_000 },
      { key: "slow", prefillMsPerToken: 0.3, matchedTokens: 4_000, backlogMs: 20 },
    ];
    const forwards = shares(mixed, among(500));
    const backwards = shares([...mixed].reverse(), among(500));
    for (const key of ["fast", "slow"]) expect(backwards[key]).toBeCloseTo(forwards[key]!, 9);
    expect(forwards.slow).toBeGreaterThan(0.3);
  });
});

test("decides as the rule written down plainly does", () => {
  const values = fc.array(
    fc.record({
      weight: fc.constantFrom(0.5, 1, 2),
      inFlight: fc.integer({ min: 0, max: 30 }),
      answers: fc.integer({ min: 0, max: 30 }),
      backlogMs: fc.integer({ min: 0, max: 40 }).map((n) => n * 25),
      matchedTokens: fc.integer({ min: 0, max: 20 }).map((n) => n * 50),
      prefillMsPerToken: fc.constantFrom(0.05, 0.1, 0.4),
      prefillMsPerTokenPair: fc.constantFrom(0, 1e-5),
    }),
    { minLength: 2, maxLength: 7 },
  );
  fc.assert(
    fc.property(values, fc.constantFrom(0, 0.5, 0.9), (rows, busyShare) => {
      const forAll = 1 + busyShare ** (Math.sqrt(2 * (rows.length + 1)) - 1) / (1 - busyShare);
      const request = { ...ofTokens(1_000), expectedOutputTokens: 50, busyShare };
      const requests = rows.reduce((sum, { inFlight }) => sum + inFlight, 1);
      const bound = (3 * requests) / rows.reduce((sum, { weight }) => sum + weight, 0) + 16;
      const isOpen = rows.map(({ inFlight, weight }) => inFlight <= bound * weight);
      const open = rows.filter((_, i) => isOpen[i]);
      const answers = open.reduce((sum, row) => sum + row.answers, 0);
      const weights = open.reduce((sum, { weight }) => sum + weight, 0);
      const cost = rows.map((row) => {
        const beyondMean = Math.max(0, row.answers - (answers * row.weight) / weights);
        const uncached = Math.max(1, 1_000 - row.matchedTokens);
        const pairs = uncached * (row.matchedTokens + uncached / 2);
        const ownMs = row.prefillMsPerToken * uncached + row.prefillMsPerTokenPair * pairs;
        const requestsMs = row.inFlight + 1;
        const stalled = row.answers / 100 + beyondMean * 0.5 * (1 - busyShare) ** 4;
        return (row.backlogMs + requestsMs + ownMs * (forAll + stalled)) / row.weight;
      });
      const least = Math.min(...cost.filter((_, i) => isOpen[i]));
      const { candidates } = explain(
        rows.map((row, i) => ({ key: `e${i}`, ...row })),
        request,
      );
      for (const [i, one] of candidates.entries()) {
        expect(one.eligible).toBe(isOpen[i]);
        if (one.eligible) expect(one.cost! / cost[i]!).toBeCloseTo(1, 9);
        if (!one.eligible || cost[i]! > least + 8.000_001) expect(one.probability).toBe(0);
      }
    }),
    { numRuns: randomRuns(300) },
  );
});

describe("an engine that another router owns", () => {
  const ofRouter = { ...prompt, ownershipMs: 20 };
  const priceOf = (row: Omit<CandidateRow, "key">, request: RequestFeatures = ofRouter): number =>
    termsOf(
      [
        { key: "own", own: 1 },
        { key: "other", ...row },
      ],
      request,
    ).other!.ownership_ms!;

  test("costs a cold prompt a little more, so that it stays unless that engine is better by more", () => {
    const rows = (backlogMs: number): CandidateRow[] => [{ key: "own", own: 1, backlogMs }, { key: "other" }];
    expect(shares(rows(9), ofRouter)).toEqual({ own: 1, other: 0 });
    expect(shares(rows(40), ofRouter)).toEqual({ own: 0, other: 1 });
    expect(shares(rows(9))).toEqual({ own: 0, other: 1 });
  });

  test("costs the less the more of the prompt it has", () => {
    expect(priceOf({})).toBe(20);
    expect(priceOf({ matchedTokens: 2_000 })).toBe(2.5);
    expect(priceOf({ matchedTokens: 4_000 })).toBe(0);
    expect(priceOf({ own: 1 })).toBe(0);
    expect(priceOf({}, prompt)).toBe(0);
  });
});

describe("the way to an engine", () => {
  const far = 0.5 + 2 + 74;
  const networkOf = (rows: readonly CandidateRow[], request = prompt) =>
    Object.fromEntries(Object.entries(termsOf(rows, request)).map(([key, terms]) => [key, terms.network_ms]));

  test("counts by what a round trip takes longer than to the nearest one, whatever the weight and the load", () => {
    const rows: CandidateRow[] = [
      { key: "far", networkMs: far, weight: 2, inFlight: 9 },
      { key: "near", networkMs: 0.5 },
    ];
    expect(networkOf(rows)).toEqual({ far: 74, near: 0 });
    expect(networkOf(rows, { ...prompt, busyShare: 0.9 })).toEqual({ far: 74, near: 0 });
  });

  test("takes an idle prompt to the near engine, and to the far one when its cache or the other's queue pays for the trip", () => {
    const rows = (farRow: object = {}, nearRow: object = {}): CandidateRow[] => [
      { key: "far", networkMs: far, ...farRow },
      { key: "near", networkMs: 0.5, ...nearRow },
    ];
    expect(shares(rows())).toEqual({ far: 0, near: 1 });
    expect(shares(rows({ matchedTokens: 600 }))).toEqual({ far: 0, near: 1 });
    expect(shares(rows({ matchedTokens: 900 }))).toEqual({ far: 1, near: 0 });
    expect(shares(rows({}, { backlogMs: 60 }))).toEqual({ far: 0, near: 1 });
    expect(shares(rows({}, { backlogMs: 90 }))).toEqual({ far: 1, near: 0 });
  });

  test("changes nothing, to the last digit, between engines that are equally far or of one data centre", () => {
    const rows = (networkMs: readonly number[]): CandidateRow[] =>
      networkMs.map((ms, i) => ({ key: `e${i}`, networkMs: ms, backlogMs: 0.1 + 8 * i, matchedTokens: 700 * i }));
    const decided = (networkMs: readonly number[]) =>
      explain(rows(networkMs)).candidates.map(({ cost, probability }) => [cost, probability]);
    const unknown = decided([NaN, NaN, NaN]);
    expect(decided([74, 74, 74])).toEqual(unknown);
    expect(decided([0.1, 2, 1.3])).toEqual(unknown);
    expect(decided([74.1, 76, 75.3])).toEqual(unknown);
    expect(decided([0.1, 3, 1.3])).not.toEqual(unknown);
  });

  test("counts for later turns too while the nearest engines have memory", () => {
    const counted = (nearUse: readonly number[], farUse = 0.5) =>
      networkOf([
        { key: "far", networkMs: far, kvUse: farUse },
        ...nearUse.map((kvUse, i) => ({ key: `near${i}`, networkMs: 0.5, kvUse })),
      ]).far;
    expect(counted([0])).toBe(5 * 74);
    expect(counted([0.5])).toBe(1.0625 * 74);
    expect(counted([1])).toBe(74);
    expect(counted([1.2])).toBe(74);
    expect(counted([0.25, 0.75], 0)).toBe(1.0625 * 74);
    expect(counted([0.5, NaN])).toBe(74);
  });

  test("counts once where the nearest engines have prompts to compute: later turns would wait for them as well", () => {
    const counted = (...pending: readonly number[]) =>
      networkOf([
        { key: "far", networkMs: far, kvUse: 0, pendingPrefillTokens: 9_000 },
        ...pending.map((pendingPrefillTokens, i) => ({
          key: `near${i}`,
          networkMs: 0.5,
          kvUse: 0,
          pendingPrefillTokens,
        })),
      ]).far;
    expect(counted(0)).toBe(5 * 74);
    expect(counted(1)).toBe(74);
    expect(counted(0, 2_000)).toBe(3 * 74);
  });

  test("that is not known counts like the shortest that is", () => {
    const rows: CandidateRow[] = [{ key: "new" }, { key: "far", networkMs: 150 }, { key: "near", networkMs: 74 }];
    expect(networkOf(rows)).toEqual({ new: 0, far: 74, near: 0 });
  });

  test("is no load of the engine: what peers send fills far engines as it fills near ones", () => {
    const rows: CandidateRow[] = [
      { key: "a", networkMs: 100, backlogMs: 30 },
      { key: "b", networkMs: 0 },
    ];
    const of = (known: readonly CandidateRow[]) => explain(known, { ...prompt, estimatedPeerTokens: 5_000 });
    // The peers' 500 ms level both, so that only the way is left, which outweighs it.
    expect(byKey(of(rows))).toEqual({ a: 0, b: 1 });
    expect(byKey(of(rows.map(({ networkMs: _, ...row }) => row))).a).toBeGreaterThan(0.4);
  });
});
