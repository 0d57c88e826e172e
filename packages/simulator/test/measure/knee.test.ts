import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { findKnee, isSustained, type KneeLoad, type KneeRun, kneeLoad, maxKneeRuns } from "../../src/measure/knee.ts";
import type { SimResult } from "../../src/run.ts";
import { simResult } from "./records.ts";

interface Queue {
  readonly ratePerS: number;
  readonly serviceMs: number;
  /** Time of an answer after its first token, in which it occupies nobody. */
  readonly streamMs?: number;
  readonly seconds?: number;
  readonly servers?: number;
  readonly seed?: number;
}

/** Time per output token of a stream. */
const tokenMs = 20;

/** Poisson arrivals at servers with one queue and a constant time of service: M/D/c. */
function queueRun({ ratePerS, serviceMs, streamMs = 0, seconds = 600, servers = 1, seed = 1 }: Queue): SimResult[] {
  const random = createSeededRandom(seed);
  const freeMs = new Float64Array(servers);
  const results: SimResult[] = [];
  for (let sentMs = 0; ; ) {
    sentMs += (-Math.log1p(-random.float()) / ratePerS) * 1_000;
    if (sentMs > seconds * 1_000) return results;
    const server = freeMs.indexOf(Math.min(...freeMs));
    const doneMs = Math.max(sentMs, freeMs[server]!) + serviceMs;
    freeMs[server] = doneMs;
    const request = { outputTokens: 1 + streamMs / tokenMs };
    results.push(simResult({ request, sentMs, ttftMs: doneMs - sentMs, endMs: doneMs + streamMs }));
  }
}

const load = (parts: Partial<KneeLoad>): KneeLoad => ({
  offeredPerS: 100,
  completedPerS: 100,
  earlierTtftS: 1,
  laterTtftS: 1,
  goodput: 1,
  ...parts,
});

/** A fleet that sustains every scale up to its knee. */
const sharpKnee = (knee: number) => {
  const scales: number[] = [];
  const run = (scale: number): Promise<KneeLoad> => {
    scales.push(scale);
    return Promise.resolve(load({ completedPerS: scale <= knee ? 100 : 50 }));
  };
  return { run, scales };
};

describe("a fleet keeps up", () => {
  test.each([
    [{}, true],
    [{ completedPerS: 97 }, true],
    [{ completedPerS: 96.9 }, false],
    [{ completedPerS: 110 }, true],
    [{ laterTtftS: 2 }, true],
    [{ laterTtftS: 2.01 }, false],
    [{ laterTtftS: 0.1 }, true],
    [{ laterTtftS: Number.NaN }, false],
    [{ earlierTtftS: Number.NaN }, false],
    [{ offeredPerS: Number.NaN, completedPerS: Number.NaN }, false],
    [{ goodput: 0.9 }, true],
    [{ goodput: 0.899 }, false],
    [{ goodput: Number.NaN }, false],
  ])("%o: %s", (parts, isKept) => {
    expect(isSustained(load(parts))).toBe(isKept);
  });
});

describe("the load of a run", () => {
  test("compares what was sent and what was answered in the later half of the sending time", () => {
    const results = [
      simResult({ sentMs: 0, ttftMs: 100, endMs: 1_000 }),
      simResult({ sentMs: 4_000, ttftMs: 300, endMs: 6_000 }),
      simResult({ sentMs: 6_000, ttftMs: 500, endMs: 9_000 }),
      simResult({ sentMs: 7_000, ttftMs: 700, endMs: 8_000, error: "upstream_reset" }),
      simResult({ sentMs: 10_000, ttftMs: 900, endMs: 12_000 }),
    ];
    expect(kneeLoad(results)).toEqual({
      offeredPerS: expect.closeTo(3 / 5),
      completedPerS: expect.closeTo(2 / 5),
      earlierTtftS: expect.closeTo(0.2),
      laterTtftS: expect.closeTo(0.7),
      goodput: 0,
    });
  });

  test("counts what kept its objectives, as a row does: answers that are late or slow are no goodput", () => {
    const results = [
      simResult({ ttftMs: 2_000, endMs: 2_500 }),
      simResult({ ttftMs: 2_001, endMs: 2_501 }),
      simResult({ ttftMs: 100, endMs: 601 }),
      simResult({ ttftMs: 100, endMs: 600, error: "upstream_reset" }),
    ];
    expect(kneeLoad(results).goodput).toBe(1 / 4);
    expect(kneeLoad(results, { ttftMs: 3_000, tpotMs: Number.POSITIVE_INFINITY }).goodput).toBe(3 / 4);
  });

  test("is sustained only as far as the objectives are kept, though the fleet completes all of it", () => {
    const run = { ratePerS: 20, serviceMs: 5, seconds: 120, streamMs: 4_000 };
    const results = queueRun(run);
    expect(isSustained(kneeLoad(results, { ttftMs: 2_000, tpotMs: tokenMs }))).toBe(true);
    expect(isSustained(kneeLoad(results, { ttftMs: 2_000, tpotMs: tokenMs - 1 }))).toBe(false);
  });

  test("answers still under way when the sending ends are no sign of overload", () => {
    const slow = kneeLoad(queueRun({ ratePerS: 20, serviceMs: 5, streamMs: 30_000, seconds: 120 }));
    expect(slow.completedPerS / slow.offeredPerS).toBeCloseTo(1, 1);
    expect(isSustained(slow)).toBe(true);
  });

  test("has no meaning without requests or when all are sent at once", () => {
    for (const results of [[], [simResult({})], [simResult({}), simResult({})]]) {
      expect(isSustained(kneeLoad(results))).toBe(false);
    }
  });
});

describe("the knee", () => {
  test.each([0.11, 0.7, 1, 3.3, 15])("is found where it is: %d", async (at) => {
    const { run, scales } = sharpKnee(at);
    const knee = await findKnee({ run, lowScale: 0.1, highScale: 16 });
    expect(knee.position).toBe("between");
    expect(knee.scale).toBeLessThanOrEqual(at);
    expect(knee.scale * (1 + knee.relativeError!)).toBeGreaterThan(at);
    expect(knee.relativeError).toBeLessThanOrEqual(0.03);
    expect(scales.length).toBeLessThanOrEqual(9);
    expect(knee.runs.map(({ scale }) => scale)).toEqual(scales);
  });

  test("below or above the bounds is told, after a run at the bound", async () => {
    const below = sharpKnee(0.05);
    expect(await findKnee({ ...below, lowScale: 0.1, highScale: 1 })).toMatchObject({ scale: 0.1, position: "below" });
    expect(below.scales.at(-1)).toBe(0.1);
    const above = sharpKnee(5);
    expect(await findKnee({ ...above, lowScale: 0.1, highScale: 1 })).toMatchObject({ scale: 1, position: "above" });
    expect(above.scales.at(-1)).toBe(1);
  });

  test("at a bound itself is between the bounds", async () => {
    const knee = await findKnee({ ...sharpKnee(0.1), lowScale: 0.1, highScale: 1 });
    expect(knee).toMatchObject({ scale: 0.1, position: "between" });
    expect(knee.relativeError).toBeLessThanOrEqual(0.03);
  });

  test("bounds nearer than the error need a run at each", async () => {
    const near = sharpKnee(1.005);
    const knee = await findKnee({ ...near, lowScale: 1, highScale: 1.01 });
    expect(knee).toMatchObject({ scale: 1, position: "between", relativeError: expect.closeTo(0.01) });
    expect(near.scales).toEqual([1, 1.01]);
  });

  test("is found in a bounded number of runs, however exact it should be", async () => {
    for (const at of [0.001, 0.37, 5_000]) {
      const { run, scales } = sharpKnee(at);
      const knee = await findKnee({ run, lowScale: 0.01, highScale: 1_000, relativeError: 1e-9 });
      expect(scales.length).toBeLessThanOrEqual(maxKneeRuns);
      expect(knee.runs).toHaveLength(scales.length);
    }
    const { run } = sharpKnee(0.37);
    const knee = await findKnee({ run, lowScale: 0.01, highScale: 1_000, relativeError: 1e-9 });
    expect(knee.relativeError).toBeGreaterThan(1e-9);
    expect(knee.relativeError).toBeLessThan(0.002);
  });

  test("tells of every run and of how many there will be", async () => {
    const seen: [KneeRun, number, number][] = [];
    const knee = await findKnee({
      ...sharpKnee(2),
      lowScale: 0.5,
      highScale: 8,
      onRun: (run, { runs, expectedRuns }) => seen.push([run, runs, expectedRuns]),
    });
    expect(seen.map(([run]) => run)).toEqual(knee.runs);
    expect(seen.map(([, runs]) => runs)).toEqual(knee.runs.map((_, index) => index + 1));
    expect(new Set(seen.map(([, , expected]) => expected))).toEqual(new Set([knee.runs.length]));
  });

  test("a run that fails ends the search", async () => {
    const run = () => Promise.reject(new Error("no trace"));
    await expect(findKnee({ run, lowScale: 1, highScale: 2 })).rejects.toThrow("no trace");
  });

  test.each([
    { lowScale: 0, highScale: 1 },
    { lowScale: 1, highScale: 1 },
    { lowScale: 2, highScale: 1 },
    { lowScale: 1, highScale: Number.POSITIVE_INFINITY },
    { lowScale: Number.NaN, highScale: 1 },
    { lowScale: 1, highScale: 2, relativeError: 0 },
  ])("bounds without a sense are refused: %o", async (bounds) => {
    await expect(findKnee({ ...sharpKnee(1), ...bounds })).rejects.toThrow(RangeError);
  });

  test.each([1, 2, 3])("of a queue is near its capacity, with seed %i", async (seed) => {
    for (const { servers, streamMs } of [
      { servers: 1, streamMs: 0 },
      { servers: 4, streamMs: 5_000 },
    ]) {
      const capacityPerS = (servers * 1_000) / 50;
      const run = (scale: number): Promise<KneeLoad> =>
        Promise.resolve(
          kneeLoad(queueRun({ ratePerS: scale * capacityPerS, serviceMs: 50, servers, streamMs, seed, seconds: 300 })),
        );
      const knee = await findKnee({ run, lowScale: 0.1, highScale: 4 });
      expect(knee.position).toBe("between");
      expect(knee.scale).toBeGreaterThan(0.85);
      expect(knee.scale).toBeLessThan(1.06);
      expect(knee.runs.length).toBeLessThanOrEqual(8);
    }
  });
});
