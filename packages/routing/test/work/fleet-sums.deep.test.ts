import { createSeededRandom, DecayedRegression, type Random, type SampleSums } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import { priorFetch } from "../../src/work/fetch-rates.ts";
import { FleetSums, learningHalfLifeMs, maxReportingRouters, type OwnSamples } from "../../src/work/fleet-sums.ts";
import { type LearnedTimes, sumsOfFetch, sumsOfFit } from "../../src/work/learned-times.ts";
import { maxCounted } from "../../src/work/merge-sums.ts";
import { PoolWork } from "../../src/work/pool-work.ts";
import { anyPrompt, measured, targetOf, usualEngine } from "./synthetic-engine.ts";

let time: VirtualTime;
let fleet: FleetSums;
const nothing: SampleSums = { matrix: [0, 0, 0, 0, 0, 0, 0, 0, 0], right: [0, 0, 0], weight: 0 };
const seenNothing: OwnSamples = {
  prefill: () => nothing,
  answers: () => nothing,
  fetches: () => nothing,
  differences: () => [],
};

beforeEach(() => {
  time = createVirtualTime();
  time.advance(10 * learningHalfLifeMs);
  fleet = new FleetSums(time.clock, seenNothing);
});

const fitBy = (by: number) => ({ msPerKilotoken: 60 * by, msPerMegapair: 1.5 * by, fixedMs: 12 * by });
const timesOf = (change: Partial<LearnedTimes> = {}, by = 1, samples = 100): LearnedTimes => ({
  ...{ fit: fitBy(by), sums: sumsOfFit(fitBy(by), samples), msPerOutputToken: 20 * by, answers: 40 },
  ...{ ageMs: 0, targets: [], fetches: [], ...change },
});

/** Milliseconds that a prompt of so many thousand tokens takes by a fit of these sums alone. */
function msOf(sums: SampleSums | undefined, kilotokens = 4): number {
  const fit = new DecayedRegression([60, 1.5, 12], 0.998);
  const noPrior = { matrix: new Float64Array(9), right: new Float64Array(3) };
  if (sums) fit.solve(noPrior, { sums, own: 1, reported: 1 });
  return fit.value([kilotokens, kilotokens ** 2 / 2, 1]);
}

const prefillMs = (): number => msOf(fleet.merged?.prefill);

test("is nothing as long as nobody has told anything, nor when somebody told that it knows nothing", () => {
  expect(fleet.merged).toBeUndefined();
  expect(fleet.receive("a", timesOf({ sums: nothing }))).toBe(true);
  expect([fleet.merged, fleet.routers]).toEqual([undefined, 0]);
});

test("of one router is what it told; of several their sums", () => {
  fleet.receive("a", timesOf({ targets: [{ key: "t", log: 0.6, known: 1 }] }));
  expect(fleet.merged!.prefill!.matrix).toEqual(timesOf().sums.matrix);
  expect(fleet.merged?.differences.get("t")).toEqual({ log: 0.6, known: 1 });
  fleet.receive("b", timesOf({ answers: 80 }, 1.1, 60));
  const { prefill, answers } = fleet.merged!;
  expect(prefill!.weight).toBeCloseTo(160, 9);
  for (const at of [0, 1, 2]) {
    expect(prefill!.right[at]).toBeCloseTo(timesOf().sums.right[at]! + timesOf({}, 1.1, 60).sums.right[at]!, 9);
  }
  expect(answers!.right[0]! / answers!.weight).toBeCloseTo((40 * 20 + 80 * 22) / 120, 9);
  expect(fleet.routers).toBe(2);
});

test("a router that tells again, in this epoch or a later one, takes the place of what it told", () => {
  fleet.receive("a", timesOf({}, 1, 300));
  fleet.receive("a", timesOf({}, 2, 5));
  expect(fleet.merged!.prefill!.weight).toBeCloseTo(5, 9);
  expect(prefillMs() / msOf(timesOf({}, 2, 5).sums)).toBeCloseTo(1, 6);
});

test("what is old counts for less, by half in ten minutes, beside what is newer elsewhere and here", () => {
  fleet.receive("a", timesOf({ ageMs: learningHalfLifeMs }));
  fleet.receive("b", timesOf());
  expect(fleet.merged!.prefill!.weight).toBeCloseTo(150, 9);
  expect(fleet.routers).toBeCloseTo(1.5, 9);
  expect(fleet.ageWeights).toEqual({ own: 0, reported: 1 });
  fleet.learned();
  expect(fleet.ageWeights).toEqual({ own: 1, reported: 1 });
  time.advance(learningHalfLifeMs);
  fleet.learned();
  expect(fleet.ageWeights.reported).toBeCloseTo(0.5, 9);
  expect(fleet.routers).toBeCloseTo(0.75, 9);
  fleet.receive("b", timesOf());
  time.advance(learningHalfLifeMs);
  fleet.receive("b", timesOf());
  expect(fleet.ageWeights.own).toBeCloseTo(0.5, 9);
});

describe.each([1, 2, 3, 4, 5])("whatever routers tell, seed %i,", (seed) => {
  test("the order in which they tell, and how often, makes no difference", () => {
    const random = createSeededRandom(seed);
    const anyTimes = (): LearnedTimes => {
      const targets = ["s", "t", "u"].slice(random.integer(3)).map((key) => {
        return { key, log: random.float() - 0.5, known: random.float() };
      });
      const fetches = [
        { tier: "cpu", msPerKilotoken: 5, sums: sumsOfFetch(5, 1 + random.integer(9)), ageMs: 0 },
      ] as const;
      const change = { answers: random.integer(50), targets, fetches };
      return timesOf(change, 0.6 + 0.9 * random.float(), 1 + random.integer(500));
    };
    const latest = new Map(Array.from({ length: 6 }, (_, at) => [`router-${at}`, anyTimes()]));
    for (const [router, times] of latest) fleet.receive(router, times);
    const other = new FleetSums(time.clock, seenNothing);
    for (let at = 0; at < 40; at++) {
      const router = `router-${random.integer(6)}`;
      other.receive(router, random.integer(2) === 0 ? latest.get(router)! : anyTimes());
      // Whether anybody looks meanwhile makes no difference either.
      if (random.integer(3) === 0) expect(other.merged).toBeDefined();
    }
    for (const [router, times] of [...latest].sort(() => random.float() - 0.5)) other.receive(router, times);
    expect(other.merged).toEqual(fleet.merged);
  });

  test("no router of eight that lies about anything makes of what the others say more than twice, or less than half", () => {
    const random = createSeededRandom(seed);
    const honest = Array.from({ length: 7 }, () => timesOf({}, 0.95 + 0.1 * random.float(), 50 + random.integer(30)));
    for (const [at, times] of honest.entries()) fleet.receive(`router-${at}`, times);
    const before = [0.5, 4, 30].map((kilotokens) => msOf(fleet.merged!.prefill, kilotokens));
    let taken = 0;
    for (let round = 0; round < 400; round++) {
      const lie = 10 ** (2 * random.float() - 1);
      const sums = sumsOfFit({ ...fitBy(lie), fixedMs: 500 * random.float() ** 4 }, 1 + random.integer(1_000));
      const strength = 10 ** (6 * random.float() - 2);
      const times = timesOf({
        sums: { ...sums, matrix: Array.from(sums.matrix, (one) => one * strength), right: sums.right },
      });
      if (random.integer(2) === 0) {
        const right = Array.from(sums.right, (one) => one * strength);
        Object.assign(times, { sums: { ...times.sums, right } });
      }
      if (fleet.receive("liar", times)) taken++;
      for (const [at, kilotokens] of [0.5, 4, 30].entries()) {
        const ratio = msOf(fleet.merged!.prefill, kilotokens) / before[at]!;
        expect(ratio, `seed ${seed}, round ${round}: ${kilotokens} thousand tokens, a lie of ${lie}`).toBeLessThan(2);
        expect(ratio, `seed ${seed}, round ${round}`).toBeGreaterThan(1 / 2);
      }
    }
    expect(taken).toBeGreaterThan(50);
  });
});

describe("N routers know together what one knows that sees everything", () => {
  /** Routers that hear each other after every sample of one of them, and one that sees all samples. */
  function learn(routers: number, samples: number, random: Random) {
    const one = new PoolWork(time.clock);
    const many = Array.from({ length: routers }, () => new PoolWork(time.clock));
    for (let at = 0; at < samples; at++) {
      time.advance(20);
      const target = targetOf(random.integer(4));
      const slow = target.index === 3 ? 2.5 : 1;
      const sample = measured(usualEngine, anyPrompt(random), random);
      const taken = { ...sample, elapsedMs: slow * sample.elapsedMs };
      const by = random.integer(routers);
      const elapsedMs = 20 + 120 * (random.integer(4) === 0 ? 3 : 0.6 + 0.8 * random.float());
      const fetched = { cpu: 4_000, disk: 0, external: 0, peer: 0 };
      const fetch = { fetched, elapsedMs, computeMs: 20, atMs: time.clock.nowMs() };
      for (const work of [one, many[by]!]) {
        work.rates.observe(target, taken);
        work.pace.observe(11, 150 + random.integer(100));
        work.fetches.observe(target, fetch, priorFetch(0.08));
        work.fleet.learned();
      }
      const { learned } = many[by]!;
      for (const [to, work] of many.entries()) if (to !== by) work.fleet.receive(`router-${by}`, learned);
    }
    return { one, many };
  }

  test.each([2, 8])("%i routers, within 5 %", (routers) => {
    for (const seed of [1, 2, 3]) {
      const { one, many } = learn(routers, 1_200, createSeededRandom(seed));
      for (const work of many) {
        for (const uncachedTokens of [500, 4_000, 30_000]) {
          for (const index of [0, 3]) {
            const part = { uncachedTokens, matchedTokens: 1_000 };
            const ratio = work.rates.workMs(targetOf(index), part) / one.rates.workMs(targetOf(index), part);
            expect(Math.abs(ratio - 1), `seed ${seed}, engine ${index}: ${ratio}`).toBeLessThan(0.05);
          }
        }
      }
    }
  });

  test("all together they hold as many samples as the one, so that they forget as fast as it", () => {
    const { one, many } = learn(8, 6_000, createSeededRandom(4));
    const together = many.reduce((sum, work) => sum + work.rates.sums.weight, 0);
    expect(together / one.rates.sums.weight).toBeCloseTo(1, 1);
    const answers = many.reduce((sum, work) => sum + work.pace.sums.weight, 0);
    expect(answers / one.pace.sums.weight).toBeGreaterThan(0.8);
    expect(answers / one.pace.sums.weight).toBeLessThan(1.3);
    const fetches = many.reduce((sum, work) => sum + work.fetches.sums("cpu").weight, 0);
    expect(fetches / one.fetches.sums("cpu").weight).toBeGreaterThan(0.9);
    expect(fetches / one.fetches.sums("cpu").weight).toBeLessThan(1.1);
  });
});

describe("what cannot be so is left out", () => {
  const { fit, sums } = timesOf();
  const withEntry = (place: number, value: number): Partial<LearnedTimes> => ({
    sums: { ...sums, matrix: Array.from(sums.matrix, (one, at) => (at === place ? value : one)) },
  });
  test.each<[string, Partial<LearnedTimes>]>([
    ["no speed", { fit: { ...fit, msPerKilotoken: Number.NaN } }],
    ["a negative speed", { fit: { ...fit, msPerKilotoken: -1 } }],
    ["no time at all", { fit: { msPerKilotoken: 0, msPerMegapair: 0, fixedMs: 12 } }],
    ["a minute for a token", { fit: { ...fit, msPerKilotoken: 100_001 } }],
    ["negative pairs", { fit: { ...fit, msPerMegapair: -0.1 } }],
    ["an endless fixed part", { fit: { ...fit, fixedMs: Number.POSITIVE_INFINITY } }],
    ["negative samples", { sums: { ...sums, weight: -1 } }],
    ["more samples than are ever told", { sums: sumsOfFit(fit, 1_001) }],
    ["a sum that is no number", withEntry(0, Number.NaN)],
    ["a negative sum", withEntry(1, -1)],
    ["an endless sum", withEntry(8, Number.POSITIVE_INFINITY)],
    ["a matrix that is of no samples", withEntry(1, 2 * Math.sqrt(sums.matrix[0]! * sums.matrix[4]!))],
    [
      "one whose minors are right and its determinant is not",
      { sums: { matrix: [1, 0.9, 0.1, 0.9, 1, 0.9, 0.1, 0.9, 1], right: [0.01, 0.01, 0.01], weight: 100 } },
    ],
    ["a right side that no samples make", { sums: { ...sums, right: [...Array.from(sums.right).slice(0, 2), 400] } }],
    ["a negative right side", { sums: { ...sums, right: [-1, 1, 1] } }],
    ["times of nothing", { sums: { ...sums, right: [0, 0, 0] } }],
    ["no matrix", { sums: { ...nothing, weight: 5 } }],
    ["no pace", { msPerOutputToken: Number.NaN }],
    ["negative answers", { answers: -5 }],
    ["an age before now", { ageMs: -1 }],
    ["a target a thousand times as slow", { targets: [{ key: "t", log: 6.9, known: 1 }] }],
    ["a target that is more than known", { targets: [{ key: "t", log: 0, known: 1.1 }] }],
    ["a target without a number", { targets: [{ key: "t", log: Number.NaN, known: 1 }] }],
  ])("%s", (_, wrong) => {
    fleet.receive("a", timesOf());
    const before = fleet.merged;
    expect(fleet.receive("b", timesOf(wrong))).toBe(false);
    expect(fleet.receive("a", timesOf(wrong))).toBe(false);
    expect(fleet.merged).toBe(before);
  });

  test("so is one that is four times off what most say, though it could be", () => {
    fleet.receive("a", timesOf());
    fleet.receive("b", timesOf({}, 1.1, 120));
    const before = prefillMs();
    for (const by of [4.7, 0.2, 50]) {
      fleet.receive("c", timesOf({}, by, 1_000));
      expect(prefillMs()).toBeCloseTo(before, 9);
      expect(fleet.routers).toBe(2);
    }
    fleet.receive("c", timesOf({}, 1.5, 150));
    expect(fleet.routers).toBe(3);
  });

  test("what this router has seen itself outranks what all others say", () => {
    const own = sumsOfFit(fitBy(1), 8);
    const seeing = new FleetSums(time.clock, { ...seenNothing, prefill: () => own });
    seeing.receive("a", timesOf({}, 5));
    seeing.receive("b", timesOf({}, 5));
    seeing.receive("c", timesOf({}, 3));
    expect(seeing.routers).toBe(1);
    // One sample less, and it is not sure of that.
    const unsure = new FleetSums(time.clock, { ...seenNothing, prefill: () => sumsOfFit(fitBy(1), 7) });
    for (const [at, by] of [5, 5, 3].entries()) unsure.receive(`${at}`, timesOf({}, by));
    expect(unsure.routers).toBe(3);
  });
});

test("no router counts for more than twice the median, or 64 samples if that is more", () => {
  const countedOf = (claimed: number, usual: number): number => {
    for (const router of ["a", "b", "c"]) fleet.receive(router, timesOf({}, 1, usual));
    fleet.receive("d", timesOf({}, 1, claimed));
    return fleet.merged!.prefill!.weight - 3 * usual;
  };
  expect(countedOf(maxCounted * 100, 100)).toBeCloseTo(200, 6);
  expect(countedOf(maxCounted * 100 + 1, 100)).toBeCloseTo(200, 6);
  expect(countedOf(maxCounted * 100 - 1, 100)).toBeCloseTo(199, 6);
  expect(countedOf(1_000, 2)).toBeGreaterThan(55);
  expect(countedOf(1_000, 2)).toBeLessThan(120);
});

test("routers beyond the bound take the place of those whose knowledge is oldest", () => {
  for (let at = 0; at < maxReportingRouters; at++)
    fleet.receive(`router-${at}`, timesOf({ ageMs: at === 7 ? 60_000 : 0 }, 1, 10));
  expect(fleet.routers).toBeGreaterThan(maxReportingRouters - 1);
  expect(fleet.routers).toBeLessThan(maxReportingRouters);
  fleet.receive("one-more", timesOf({}, 1, 10));
  expect(fleet.routers).toBeCloseTo(maxReportingRouters, 9);
});

describe("a target's difference", () => {
  const tell = (router: string, log: number, known = 1) =>
    fleet.receive(router, timesOf({ targets: [{ key: "t", log: known * log, known }] }));
  const differs = (): number => {
    const { log, known } = fleet.merged!.differences.get("t")!;
    return log / known;
  };

  test("is the mean of those that know it, by how well they do", () => {
    tell("a", 0.6);
    tell("b", 0.3, 0.5);
    expect(differs()).toBeCloseTo(0.5, 9);
  });

  test("of a router that is far off the others is left out, and of one that is less so counts twice at most", () => {
    for (const router of ["a", "b", "c"]) tell(router, 0.1, 0.2);
    tell("d", Math.log(50));
    expect(differs()).toBeCloseTo(0.1, 9);
    tell("d", 1.1);
    expect(differs()).toBeCloseTo((0.6 * 0.1 + 0.4 * 1.1) / 1, 9);
  });
});

describe("what fetching from a tier takes", () => {
  const fetchOf = (msPerKilotoken: number, samples = 100, ageMs = 0): LearnedTimes["fetches"] => [
    { tier: "cpu", msPerKilotoken, sums: sumsOfFetch(msPerKilotoken, samples), ageMs },
  ];
  const reported = () => {
    const merged = fleet.merged?.fetches.get("cpu");
    return merged && merged.right[0]! / merged.matrix[0]!;
  };

  test("is the fit of the samples of those that know", () => {
    fleet.receive("a", timesOf());
    expect(reported()).toBeUndefined();
    fleet.receive("b", timesOf({ fetches: fetchOf(10) }));
    expect(reported()).toBeCloseTo(10, 9);
    fleet.receive("c", timesOf({ fetches: fetchOf(12, 100, learningHalfLifeMs) }));
    expect(reported()).toBeGreaterThan(10.3);
    expect(reported()).toBeLessThan(10.7);
    expect(fleet.merged?.fetches.has("disk")).toBe(false);
  });

  test("of a router that is four times off what most say is left out; next to nothing is like nothing", () => {
    fleet.receive("a", timesOf({ fetches: fetchOf(10) }));
    fleet.receive("b", timesOf({ fetches: fetchOf(12) }));
    const before = reported()!;
    fleet.receive("c", timesOf({ fetches: fetchOf(70, 150) }));
    expect(reported()).toBeCloseTo(before, 9);
    for (const [at, router] of ["a", "b", "c"].entries()) fleet.receive(router, timesOf({ fetches: fetchOf(at / 10) }));
    expect(reported()).toBeLessThan(0.2);
  });

  test.each([
    ["a negative time", { msPerKilotoken: -1 }],
    ["an endless time", { sums: { matrix: [1], right: [Number.POSITIVE_INFINITY], weight: 5 } }],
    ["more samples than are ever told", { sums: { ...sumsOfFetch(10, 5), weight: 1_001 } }],
    ["an age before now", { ageMs: -1 }],
    ["a tier that there is none of", { tier: "tape" as "cpu" }],
  ])("cannot be so with %s", (_, wrong) => {
    expect(fleet.receive("a", timesOf({ fetches: [{ ...fetchOf(10)[0]!, ...wrong }] }))).toBe(false);
    expect(fleet.merged).toBeUndefined();
  });
});
