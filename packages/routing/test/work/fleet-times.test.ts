import { createSeededRandom } from "@espalier/common";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import { FleetTimes, learningHalfLifeMs, maxTellers } from "../../src/work/fleet-times.ts";
import { coldPromptMs, type LearnedTimes } from "../../src/work/learned-times.ts";

let time: VirtualTime;
let fleet: FleetTimes;

beforeEach(() => {
  time = createVirtualTime();
  time.advance(10 * learningHalfLifeMs);
  fleet = new FleetTimes(time.clock);
});

const timesOf = (change: Partial<LearnedTimes> = {}, by = 1): LearnedTimes => ({
  fit: { msPerKilotoken: 60 * by, msPerMegapair: 1.5 * by, fixedMs: 12 * by },
  samples: 100,
  msPerOutputToken: 20 * by,
  answers: 40,
  ageMs: 0,
  targets: [],
  fetches: [],
  ...change,
});

/** What a reader would see of it. */
const seen = (of: FleetTimes) => ({
  merged: of.merged && { ...of.merged, differences: [...of.merged.differences].sort() },
  samples: of.samples,
  answers: of.answers,
});

test("is nothing as long as nobody has told anything, nor when somebody told that it knows nothing", () => {
  expect(fleet.merged).toBeUndefined();
  expect(fleet.tell("a", timesOf({ samples: 0 }))).toBe(true);
  expect([fleet.merged, fleet.samples, fleet.answers]).toEqual([undefined, 0, 0]);
});

test("of one router is what it told", () => {
  fleet.tell("a", timesOf({ targets: [{ key: "t", log: 0.6, known: 1 }] }));
  expect(fleet.merged?.fit).toEqual(timesOf().fit);
  expect(fleet.merged?.msPerOutputToken).toBe(20);
  expect(fleet.merged?.differences.get("t")).toEqual({ log: 0.6, known: 1 });
  expect([fleet.samples, fleet.answers]).toEqual([100, 40]);
});

test("of several is their mean, by what each rests on", () => {
  fleet.tell("a", timesOf({ samples: 300, answers: 0, msPerOutputToken: 0 }));
  fleet.tell("b", timesOf({ samples: 100, answers: 50 }, 2));
  expect(fleet.merged?.fit.msPerKilotoken).toBeCloseTo((300 * 60 + 100 * 120) / 400, 9);
  // Only one of them has seen answers.
  expect(fleet.merged?.msPerOutputToken).toBeCloseTo(40, 9);
  expect([fleet.samples, fleet.answers]).toEqual([400, 50]);
});

test("counts what is old for less, in sums and among others", () => {
  fleet.tell("a", timesOf({ ageMs: learningHalfLifeMs }));
  expect(fleet.samples).toBeCloseTo(50, 9);
  fleet.tell("b", timesOf({}, 2));
  expect(fleet.merged?.fit.msPerKilotoken).toBeCloseTo((50 * 60 + 100 * 120) / 150, 9);
  time.advance(learningHalfLifeMs);
  expect(fleet.samples).toBeCloseTo(75, 9);
  expect(fleet.answers).toBeCloseTo(30, 9);
});

describe.each([1, 2, 3, 4, 5])("whatever routers tell, seed %i,", (seed) => {
  const random = createSeededRandom(seed);
  const anyTimes = (): LearnedTimes => {
    const by = 0.6 + 0.9 * random.float();
    const targets = ["s", "t", "u"].slice(random.integer(3)).map((key) => {
      return { key, log: random.float() - 0.5, known: random.float() };
    });
    return timesOf({ samples: 1 + random.integer(500), answers: random.integer(50), targets }, by);
  };

  test("the order in which they tell, and how often, makes no difference", () => {
    const latest = new Map(Array.from({ length: 6 }, (_, at) => [`router-${at}`, anyTimes()]));
    const one = new FleetTimes(time.clock);
    for (const [router, times] of latest) one.tell(router, times);
    const other = new FleetTimes(time.clock);
    for (let at = 0; at < 40; at++) {
      const router = `router-${random.integer(6)}`;
      other.tell(router, random.integer(2) === 0 ? latest.get(router)! : anyTimes());
    }
    for (const [router, times] of [...latest].sort(() => random.float() - 0.5)) other.tell(router, times);
    expect(seen(other)).toEqual(seen(one));
  });

  test("the mean lies among them", () => {
    const all = Array.from({ length: 4 }, anyTimes);
    for (const [at, times] of all.entries()) fleet.tell(`router-${at}`, times);
    for (const kilotokens of [0.5, 1, 20]) {
      const each = all.map(({ fit }) => coldPromptMs(fit, kilotokens));
      const merged = coldPromptMs(fleet.merged!.fit, kilotokens);
      expect(merged).toBeGreaterThanOrEqual(Math.min(...each) * (1 - 1e-9));
      expect(merged).toBeLessThanOrEqual(Math.max(...each) * (1 + 1e-9));
    }
  });
});

describe("a target's difference", () => {
  test("is to the merged fit, whatever each router's own fit says", () => {
    // Both have seen that the target takes 120 ms for a thousand tokens; one of them calls that usual.
    const fitOf = (msPerKilotoken: number) => ({ msPerKilotoken, msPerMegapair: 0, fixedMs: 10 });
    fleet.tell("a", timesOf({ fit: fitOf(60), targets: [{ key: "t", log: Math.log(2), known: 1 }] }));
    fleet.tell("b", timesOf({ fit: fitOf(120), targets: [{ key: "t", log: 0, known: 1 }] }));
    const { fit, differences } = fleet.merged!;
    const log = differences.get("t")!.log / 2 + differences.get("t")!.log / 2;
    expect(fit.msPerKilotoken * Math.exp(log)).toBeCloseTo(120, 6);
  });

  test("of which little is known is small", () => {
    fleet.tell("a", timesOf({ targets: [{ key: "t", log: 0.05, known: 0.1 }] }));
    expect(fleet.merged?.differences.get("t")?.log).toBeCloseTo(0.05, 9);
    expect(fleet.merged?.differences.get("t")?.known).toBeCloseTo(0.1, 9);
  });
});

describe("what cannot be so is left out", () => {
  const { fit } = timesOf();
  test.each<[string, Partial<LearnedTimes>]>([
    ["no speed", { fit: { ...fit, msPerKilotoken: Number.NaN } }],
    ["a negative speed", { fit: { ...fit, msPerKilotoken: -1 } }],
    ["no time at all", { fit: { msPerKilotoken: 0, msPerMegapair: 0, fixedMs: 12 } }],
    ["a minute for a token", { fit: { ...fit, msPerKilotoken: 100_001 } }],
    ["negative pairs", { fit: { ...fit, msPerMegapair: -0.1 } }],
    ["an endless fixed part", { fit: { ...fit, fixedMs: Number.POSITIVE_INFINITY } }],
    ["negative samples", { samples: -1 }],
    ["more samples than are ever told", { samples: 1_001 }],
    ["no pace", { msPerOutputToken: Number.NaN }],
    ["negative answers", { answers: -5 }],
    ["an age before now", { ageMs: -1 }],
    ["a target a thousand times as slow", { targets: [{ key: "t", log: 6.9, known: 1 }] }],
    ["a target that is more than known", { targets: [{ key: "t", log: 0, known: 1.1 }] }],
    ["a target without a number", { targets: [{ key: "t", log: Number.NaN, known: 1 }] }],
  ])("%s", (_, wrong) => {
    fleet.tell("a", timesOf());
    const before = seen(fleet);
    expect(fleet.tell("b", timesOf(wrong))).toBe(false);
    expect(fleet.tell("a", timesOf(wrong))).toBe(false);
    expect(seen(fleet)).toEqual(before);
  });

  test("so is one that is four times off what most say, though it could be", () => {
    fleet.tell("a", timesOf());
    fleet.tell("b", timesOf({ samples: 120 }, 1.1));
    const before = coldPromptMs(fleet.merged!.fit, 1);
    for (const by of [4.7, 0.2, 50]) {
      fleet.tell("c", timesOf({ samples: 150 }, by));
      expect(coldPromptMs(fleet.merged!.fit, 1)).toBeCloseTo(before, 9);
      expect(fleet.samples).toBe(220);
    }
    fleet.tell("c", timesOf({ samples: 150 }, 1.5));
    expect(fleet.samples).toBe(370);
  });
});

test("routers beyond the bound take the place of those whose knowledge is oldest", () => {
  for (let at = 0; at < maxTellers; at++) fleet.tell(`router-${at}`, timesOf({ samples: 1, ageMs: at === 7 ? 1 : 0 }));
  expect(fleet.samples).toBeCloseTo(maxTellers, 3);
  fleet.tell("one-more", timesOf({ samples: 500 }));
  expect(fleet.samples).toBeCloseTo(maxTellers - 1 + 500, 9);
});

describe("what fetching from a tier takes", () => {
  const fetchOf = (msPerKilotoken: number, samples = 100, ageMs = 0) =>
    ({ tier: "cpu", msPerKilotoken, samples, ageMs }) as const;
  const told = () => fleet.merged?.fetches.get("cpu");

  test("is the mean of those that know, by what each rests on and how old that is", () => {
    fleet.tell("a", timesOf());
    expect(told()).toBeUndefined();
    fleet.tell("b", timesOf({ fetches: [fetchOf(10)] }));
    expect(told()).toEqual({ msPerKilotoken: 10, samples: 100, learnedMs: time.clock.nowMs() });
    fleet.tell("c", timesOf({ fetches: [fetchOf(20, 200, learningHalfLifeMs)] }));
    expect(told()?.msPerKilotoken).toBeCloseTo(15, 9);
    expect(told()?.samples).toBeCloseTo(200, 9);
    expect(fleet.merged?.fetches.has("disk")).toBe(false);
    fleet.tell("d", timesOf({ fetches: [fetchOf(90, 0)] }));
    expect(told()?.msPerKilotoken).toBeCloseTo(15, 9);
  });

  test("is as old as it was when it was told, however late the others tell", () => {
    fleet.tell("a", timesOf({ fetches: [fetchOf(10, 100, 5_000)] }));
    const { learnedMs } = told()!;
    time.advance(60_000);
    fleet.tell("b", timesOf());
    expect(told()?.learnedMs).toBe(learnedMs);
  });

  test("of a router that is four times off what most say is left out; next to nothing is like nothing", () => {
    fleet.tell("a", timesOf({ fetches: [fetchOf(10)] }));
    fleet.tell("b", timesOf({ fetches: [fetchOf(12)] }));
    fleet.tell("c", timesOf({ fetches: [fetchOf(70, 150)] }));
    expect(told()?.msPerKilotoken).toBeCloseTo(11, 9);
    fleet.tell("c", timesOf({ fetches: [fetchOf(14)] }));
    expect(told()?.msPerKilotoken).toBeCloseTo(12, 9);
    for (const [at, router] of ["a", "b", "c"].entries()) fleet.tell(router, timesOf({ fetches: [fetchOf(at / 10)] }));
    expect(told()?.msPerKilotoken).toBeCloseTo(0.1, 9);
  });

  test.each([
    ["a negative time", { msPerKilotoken: -1 }],
    ["an endless time", { msPerKilotoken: Number.POSITIVE_INFINITY }],
    ["more samples than are ever told", { samples: 1_001 }],
    ["an age before now", { ageMs: -1 }],
    ["a tier that there is none of", { tier: "tape" as "cpu" }],
  ])("cannot be so with %s", (_, wrong) => {
    expect(fleet.tell("a", timesOf({ fetches: [{ ...fetchOf(10), ...wrong }] }))).toBe(false);
    expect(fleet.merged).toBeUndefined();
  });
});
