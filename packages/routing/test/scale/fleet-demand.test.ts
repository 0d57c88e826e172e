import { asRouterId, createSeededRandom, type Random } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import {
  createSeriesMeter,
  createVirtualTime,
  fixedSeeds,
  type SeriesMeter,
  type VirtualTime,
} from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { WaitingWork } from "../../src/admission/index.ts";
import { maxNotedModels, readDemandNote, writeDemandNote } from "../../src/scale/demand-note.ts";
import {
  type DemandedEngines,
  demandLeaseMs,
  FleetDemand,
  maxDemandedModels,
  maxDemandingRouters,
} from "../../src/scale/fleet-demand.ts";
import { steadyMs } from "../../src/scale/steady-count.ts";
import { PoolWork } from "../../src/work/pool-work.ts";

/** A request costs an engine 100 ms for its prompt and, at the usual pace, 80 ms for its answer. */
const promptTokens = 1_000;
const promptMs = 100;
const outputTokens = 200;
const costS = 0.18;
const utilization = 0.7;

interface Rig {
  readonly time: VirtualTime;
  readonly demand: FleetDemand;
  readonly meter: SeriesMeter;
  readonly work: PoolWork;
  waiting: readonly WaitingWork[];
  engines: DemandedEngines;
  /** Another router's note, or one of its own. */
  hear(router: string, bytes: Uint8Array): void;
  readonly posted: Uint8Array[];
  request(): void;
  /** Poisson arrivals of so many requests per second. */
  run(seconds: number, requestsPerS: (second: number) => number, random: Random): Promise<void>;
  desired(): number;
}

async function createRig(time = createVirtualTime()): Promise<Rig> {
  const posted: Uint8Array[] = [];
  let listener: (note: Note) => void = () => {};
  const channel: NoteChannel = {
    post: (_, bytes) => posted.push(bytes) > 0,
    onNote(heard) {
      listener = heard;
      return () => {};
    },
  };
  const work = new PoolWork(time.clock);
  const meter = createSeriesMeter();
  const rig: Rig = {
    ...{ time, posted, work, meter, waiting: [], engines: { targets: [], ranks: 1, inFlight: 0 } },
    demand: new FleetDemand({
      ...{ channel, clock: time.clock, scheduler: time.scheduler, meter },
      ...{ utilization, catchUpMs: 30_000, idleMs: 60_000 },
      pools: () => [{ model: "m", work, waiting: rig.waiting }],
      enginesOf: () => rig.engines,
    }),
    hear: (router, bytes) =>
      listener({ origin: { router: asRouterId(router), epoch: 1 }, key: "demand", bytes, ageMs: 0 }),
    request() {
      work.demand.arrived(promptTokens);
      work.demand.sent({ uncachedTokens: promptTokens, matchedTokens: 0 }, promptMs);
      work.demand.answered(outputTokens);
    },
    async run(seconds, requestsPerS, random) {
      for (let second = 0; second < seconds; second++) {
        const mean = requestsPerS(second);
        let atS = 0;
        for (;;) {
          const gapS = -Math.log(1 - random.float()) / mean;
          if (atS + gapS >= 1) break;
          await time.advance(1_000 * gapS);
          atS += gapS;
          rig.request();
        }
        await time.advance(1_000 * (1 - atS));
      }
    },
    desired: () => rig.demand.of("m")?.desired.both ?? 0,
  };
  await rig.demand.start();
  return rig;
}

const needed = (requestsPerS: number): number => (requestsPerS * costS) / utilization;

describe.each(fixedSeeds(3))("seed %i", (seed) => {
  test("the desired engines follow a load up and down, in one direction at a time", async () => {
    const rig = await createRig();
    const random = createSeededRandom(seed);
    const seen: number[] = [];
    const rateAt = (second: number): number => {
      if (second < 200) return 5;
      if (second < 500) return 5 + (second - 200) / 6;
      return second < 800 ? 55 : Math.max(5, 55 - (second - 800) / 6);
    };
    for (let second = 0; second < 1_500; second += 10) {
      await rig.run(10, (within) => rateAt(second + within), random);
      seen.push(rig.desired());
    }
    const at = (second: number): number => seen[second / 10 - 1]!;
    // Enough for the load, and at most what a tenth to spare and a rate that is known to a tenth make of it.
    const most = (requestsPerS: number): number => Math.ceil((1.25 * needed(requestsPerS)) / 0.9);
    expect(at(200)).toBeGreaterThanOrEqual(Math.ceil(needed(5)));
    expect(at(200)).toBeLessThanOrEqual(most(5));
    expect(at(800)).toBeGreaterThanOrEqual(Math.ceil(needed(55)));
    expect(at(800)).toBeLessThanOrEqual(most(55));
    expect(at(1_500)).toBeLessThanOrEqual(most(5));
    const steps = seen.map((value, index) => value - (seen[index - 1] ?? value));
    const downs = steps.slice(20, 80).filter((step) => step < 0);
    const ups = steps.slice(100).filter((step) => step > 0);
    expect(downs).toEqual([]);
    expect(ups).toEqual([]);
  });

  test("a load that hovers about a whole number of engines does not move it to and fro", async () => {
    const rig = await createRig();
    const random = createSeededRandom(seed);
    const rate = (4 * utilization) / costS;
    await rig.run(120, () => rate, random);
    const seen = new Set<number>();
    let changes = 0;
    let last = rig.desired();
    for (let minute = 0; minute < 60; minute++) {
      await rig.run(60, () => rate, random);
      if (rig.desired() !== last) changes += 1;
      last = rig.desired();
      seen.add(last);
    }
    expect(changes).toBeLessThanOrEqual(4);
    expect(Math.max(...seen) - Math.min(...seen)).toBeLessThanOrEqual(2);
  });

  test("engines that come a minute after they are desired are not asked for again and again", async () => {
    const rig = await createRig();
    const random = createSeededRandom(seed);
    const asked: number[] = [];
    let backlogS = 0;
    for (let second = 0; second < 900; second++) {
      const rate = second < 60 ? 5 : 40;
      await rig.run(1, () => rate, random);
      asked.push(rig.desired());
      const engines = asked[second - 60] ?? 2;
      backlogS = Math.max(0, backlogS + rate * costS - engines);
      const waiting = Math.round(backlogS / costS);
      rig.waiting = Array.from({ length: waiting }, () => ({
        ...{ uncachedTokens: promptTokens, outputTokens, leaveInMs: Number.POSITIVE_INFINITY },
      }));
    }
    const peak = Math.max(...asked);
    const peakAt = asked.indexOf(peak);
    const falls = asked.slice(peakAt).filter((value, index, all) => index > 0 && value > all[index - 1]!);
    expect(backlogS).toBe(0);
    // More than the load needs while requests wait, and then just what it needs.
    expect(peak).toBeGreaterThan(needed(40));
    expect(asked.at(-1)).toBeLessThanOrEqual(Math.ceil((1.25 * needed(40)) / 0.9));
    expect(asked.at(-1)).toBeGreaterThanOrEqual(Math.ceil(needed(40)));
    expect(falls).toEqual([]);
  });
});

test("waiting work asks for the engines that begin all of it in time: by deadline where there is one", async () => {
  const rig = await createRig();
  rig.request();
  await rig.time.advance(120_000);
  const wait = (count: number, leaveInMs: number): WaitingWork[] =>
    Array.from({ length: count }, () => ({ uncachedTokens: promptTokens, outputTokens: 0, leaveInMs }));
  rig.waiting = wait(300, Number.POSITIVE_INFINITY);
  await rig.time.advance(1_000);
  const unhurried = rig.demand.demands[0]!.load;
  // 300 prompts of 100 ms, in 30 s.
  expect(unhurried.prefill).toBeCloseTo(1, 1);
  rig.waiting = wait(300, 6_000);
  await rig.time.advance(1_000);
  expect(rig.demand.demands[0]!.load.prefill).toBeCloseTo(5, 1);
  // Those that are due late add nothing to what is due early.
  rig.waiting = [...wait(300, 6_000), ...wait(600, 30_000)];
  await rig.time.advance(1_000);
  expect(rig.demand.demands[0]!.load.prefill).toBeCloseTo(5, 1);
});

test("one request that waits asks for an engine at once; without any for a while, none is desired", async () => {
  const rig = await createRig();
  expect(rig.desired()).toBe(0);
  rig.work.demand.arrived(promptTokens);
  rig.waiting = [{ uncachedTokens: promptTokens, outputTokens: 0, leaveInMs: Number.POSITIVE_INFINITY }];
  expect(rig.desired()).toBe(1);
  rig.waiting = [];
  rig.engines = { ...rig.engines, inFlight: 1 };
  await rig.time.advance(300_000);
  expect(rig.desired()).toBe(1);
  rig.engines = { ...rig.engines, inFlight: 0 };
  await rig.time.advance(1_000);
  expect(rig.desired()).toBe(0);
  expect(rig.meter.value("espalier_scale_desired_engines", "m", "both")).toBe(0);
});

test("a rank counts as an engine of its own", async () => {
  const rig = await createRig();
  rig.engines = { targets: [], ranks: 4, inFlight: 0 };
  await rig.run(120, () => 40, createSeededRandom(1));
  expect(rig.demand.demands[0]!.load.both).toBeCloseTo((40 * costS) / 4, 0);
});

describe("several routers", () => {
  test("add up, want the same, and one that falls silent counts for five seconds", async () => {
    const time = createVirtualTime();
    const [one, other] = [await createRig(time), await createRig(time)];
    const random = createSeededRandom(5);
    for (let second = 0; second < 150; second++) {
      for (let each = 0; each < 20; each++) (random.float() < 0.5 ? one : other).request();
      await time.advance(1_000);
      const [mine, theirs] = [one.posted.at(-1)!, other.posted.at(-1)!];
      one.hear("other", theirs);
      other.hear("one", mine);
    }
    await time.advance(1_000);
    const [mine, theirs] = [one.demand.demands[0]!, other.demand.demands[0]!];
    expect(mine.load.both).toBeCloseTo(20 * costS, 0);
    expect(mine.costMs).toBeCloseTo(1_000 * costS, 0);
    expect(mine.desired).toEqual(theirs.desired);
    const shared = mine.load.both;
    await time.advance(demandLeaseMs + 1_000);
    expect(one.demand.demands[0]!.load.both).toBeLessThan(0.6 * shared);
    // Engines are given up only when the load has been low for a while.
    expect(one.desired()).toBe(mine.desired.both);
    await time.advance(steadyMs);
    expect(one.desired()).toBeLessThan(mine.desired.both);
  });

  const sample = (model: string, desired = 1) => ({
    ...{ model, requestsPerS: 1, prefill: 0.1, outputPerS: 10, waiting: 0, waitingPrefill: 0, waitingOutputPerS: 0 },
    ...{ idleMs: 0, desired: { both: desired, prefill: 0, decode: 0 } },
  });

  test("a note is read as it was written", () => {
    const samples = [sample("a"), { ...sample("b", 7), idleMs: 12.5 }];
    expect(readDemandNote(writeDemandNote(samples))).toEqual(samples);
  });

  test.each([
    ["too many models", writeDemandNote(Array.from({ length: maxNotedModels + 1 }, (_, at) => sample(`m${at}`)))],
    ["a negative number", writeDemandNote([{ ...sample("a"), prefill: -1 }])],
    ["something that is no number", writeDemandNote([{ ...sample("a"), outputPerS: Number.NaN }])],
    ["another version", Uint8Array.of(7)],
    ["nothing", new Uint8Array()],
  ])("a note with %s changes nothing", async (_, bytes) => {
    const rig = await createRig();
    rig.hear("liar", bytes);
    await rig.time.advance(1_000);
    expect(rig.demand.demands).toEqual([]);
  });

  test("one router and one model too many: the router heard first is forgotten, the model left out", async () => {
    const rig = await createRig();
    for (let at = 0; at <= maxDemandingRouters; at++) rig.hear(`router-${at}`, writeDemandNote([sample("n")]));
    await rig.time.advance(1_000);
    expect(rig.demand.demands[0]!.requestsPerS).toBe(maxDemandingRouters);
    for (let router = 0; router <= maxDemandedModels / maxNotedModels; router++) {
      const models = Array.from({ length: maxNotedModels }, (_, at) => sample(`${router}/${at}`));
      rig.hear(`router-${router}`, writeDemandNote(models));
    }
    await rig.time.advance(1_000);
    expect(rig.demand.demands).toHaveLength(maxDemandedModels);
    rig.hear("router-9", writeDemandNote([sample("n")]));
    await rig.time.advance(1_000);
    expect(rig.demand.demands.length).toBeGreaterThan(0);
  });
});
