import { expect, test, vi } from "vitest";
import type { SimRequest } from "../../src/clients/workload.ts";
import { clusterIp } from "../../src/fleet/sim-fleet.ts";
import { createBoundsMeter } from "../../src/measure/cache-bounds.ts";
import { type RunOptions, type RunRecord, sharings } from "../../src/run.ts";
import { parametersOf, simulate } from "../../src/simulate.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

// Takes a second or two of a core, which busy machines make ten of.
vi.setConfig({ testTimeout: 60_000 });

const run = (options: RunOptions, onProgress?: (share: number) => void): Promise<RunRecord> =>
  simulate(options, () => 0, onProgress);

/** The cases that a fleet can be run in. */
const fleets: readonly Pick<RunOptions, "sharing" | "links" | "policy">[] = [
  { sharing: "mesh", links: "real", policy: "least_work" },
  ...sharings.map((sharing) => ({ sharing, links: "delays", policy: "least_work" }) as const),
  { sharing: "mesh", links: "delays", policy: "cache_aware" },
  { sharing: "mesh", links: "delays", policy: clusterIp },
];

for (const fleet of fleets) {
  test(`${fleet.policy}, ${fleet.sharing}, ${fleet.links}: all is answered once, and the same run is the same`, async () => {
    const sent: SimRequest[] = [];
    const scenario = smallScenario({ onSend: (request) => sent.push(request) });
    const record = await run(smallRun({ ...fleet, scenario }));
    const indices = record.results.map(({ request }) => request.index).sort((one, other) => one - other);
    expect(sent.length).toBeGreaterThan(30);
    expect(indices).toEqual(sent.map(({ index }) => index));
    for (const { request, error, engine, router, sentMs, firstTokenMs, endMs, cachedTokens } of record.results) {
      expect([error, request.promptTokens]).toEqual([undefined, sent[request.index]!.promptTokens]);
      expect(engine >= 0 && engine < 4).toBe(true);
      expect(router).toBe(fleet.policy === clusterIp ? -1 : Math.min(1, Math.max(0, router)));
      expect(sentMs).toBeGreaterThanOrEqual(0);
      expect(firstTokenMs).toBeGreaterThan(sentMs);
      expect(endMs).toBeGreaterThan(firstTokenMs);
      expect(cachedTokens >= 0 && cachedTokens < request.promptTokens).toBe(true);
      expect("chain" in request).toBe(false);
    }
    expect(record.durationMs).toBe(Math.max(...record.results.map(({ endMs }) => endMs)));
    expect(await run(smallRun({ ...fleet, scenario: smallScenario() }))).toEqual(record);
  });
}

test("another seed is another run", async () => {
  const records = [await run(smallRun()), await run(smallRun({ seed: 2 }))];
  expect(records[0]!.results.length).not.toBe(records[1]!.results.length);
});

test("bytes are counted where links carry something", async () => {
  const carried = await run(smallRun({ links: "real" }));
  expect(carried.linkBytes).toBeGreaterThan(1_000);
  expect((await run(smallRun())).linkBytes).toBeNaN();
});

test("routers that share know of more than those that share nothing", async () => {
  const cached = async (sharing: RunOptions["sharing"]): Promise<number> => {
    const scenario = smallScenario({ startsPerS: 20 });
    const { results } = await run(smallRun({ sharing, scenario, routers: 8 }));
    return results.reduce((sum, one) => sum + one.cachedTokens, 0);
  };
  expect(await cached("mesh")).toBeGreaterThan(1.1 * (await cached("none")));
});

test("the fleet is looked at once a virtual second", async () => {
  const { samples, durationMs } = await run(smallRun());
  expect(samples.map(({ atMs }) => atMs)).toEqual(samples.map((_, at) => (at + 1) * 1_000));
  expect(samples.length).toBe(Math.ceil(durationMs / 1_000));
  for (const { load, kvUse } of samples) expect([load.length, kvUse.length]).toEqual([4, 4]);
  expect(Math.max(...samples.flatMap(({ load }) => [...load]))).toBeGreaterThan(0);
});

test("the bounds are those of the requests in the order of sending", async () => {
  const options = smallRun();
  const meter = createBoundsMeter({ capacityBlocks: 4 * 2_000 });
  const { bounds } = await run({ ...options, scenario: smallScenario({ onSend: (request) => meter.add(request) }) });
  expect(bounds).toEqual(meter.result());
  expect(bounds.infiniteCache).toBeGreaterThan(0.2);
});

test("progress never goes back, and ends at 1, however many requests were expected", async () => {
  // The end was told as the share of the expected requests, which is a guess where follow-ups are drawn.
  for (const limit of [{ requests: 25 }, { durationS: 3 }]) {
    const reported: number[] = [];
    await run(smallRun(limit), (share) => reported.push(share));
    expect(reported.at(-1)).toBe(1);
    expect([...reported].sort((one, other) => one - other)).toEqual(reported);
    expect(reported.every((share) => share >= 0 && share <= 1)).toBe(true);
  }
});

test("requests, duration, scale and engines are what was asked for", async () => {
  expect((await run(smallRun({ requests: 17 }))).results).toHaveLength(17);
  const short = await run(smallRun({ durationS: 2 }));
  expect(Math.max(...short.results.map(({ sentMs }) => sentMs))).toBeLessThan(2_000);
  const more = await run(smallRun({ durationS: 2, scale: 4 }));
  expect(more.results.length).toBeGreaterThan(2.5 * short.results.length);
  const one = await run(smallRun({ engines: 1 }));
  expect(new Set(one.results.map(({ engine }) => engine))).toEqual(new Set([0]));
});

test("an engine's parameters are the preset's, then the scenario's, then the run's", () => {
  const options = smallRun();
  expect(parametersOf(options)).toMatchObject({ blockCount: 2_000, stepBaseMs: 6, maxRunning: 256 });
  const own = parametersOf({ ...options, parameters: { blockCount: 99, stepBaseMs: 7 } });
  expect(own).toMatchObject({ blockCount: 99, stepBaseMs: 7, maxRunning: 256 });
});

test("the run's own cost is measured by the clock that it is given", async () => {
  let readings = 0;
  const { wallS } = await simulate(smallRun({ requests: 5 }), () => ++readings * 2_500);
  expect(wallS).toBe(2.5);
});

test("the timing of the world is what was asked for", async () => {
  const firstMs = async (hopDelayMs: number): Promise<number> => {
    const { results } = await run(smallRun({ requests: 1, timing: { hopDelayMs } }));
    return results[0]!.firstTokenMs - results[0]!.sentMs;
  };
  expect((await firstMs(10)) - (await firstMs(1))).toBeCloseTo(4 * 9, 6);
});
