import { expect, test } from "vitest";
import { createRow } from "../../src/measure/rows.ts";
import type { RunOptions } from "../../src/run.ts";
import type { Scenario } from "../../src/scenarios/scenario.ts";
import { simulate } from "../../src/simulate.ts";
import type { Topology } from "../../src/topology.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

/** The second region's engines are three times slower. */
const topology: Topology = {
  regions: [
    { name: "a", engines: 2, routers: 1 },
    { name: "b", engines: 2, routers: 1, parameters: { stepBaseMs: 18 } },
  ],
  delaysMs: [
    [1, 40],
    [40, 1],
  ],
  clientDelayMs: 10,
  clients: [
    { atS: 0, shares: [1, 0] },
    { atS: 2, shares: [1, 0] },
    { atS: 2.001, shares: [0, 1] },
  ],
};

const small = smallScenario({ durationS: 4 });
const scenario: Scenario = {
  ...small,
  fleet: { ...small.fleet, topology },
  variants: [{ name: "apart", cells: { count: 2, balancer: "region" } }],
};
const regionalRun = (options: Partial<RunOptions> = {}): RunOptions => smallRun({ scenario, ...options });
const regionsOf = (engine: number): number => Math.floor(engine / 2);

test("sessions start in the regions of their time, stay there, and are answered by routers of theirs", async () => {
  const { results } = await simulate(regionalRun(), () => 0);
  const starts = new Map<number, number>();
  for (const { request, sentMs } of results) if (request.turn === 0) starts.set(request.session, sentMs);
  for (const { request, router } of results) {
    expect(request.region).toBe(starts.get(request.session)! < 2_000 ? 0 : 1);
    expect(router).toBe(request.region);
  }
  expect(new Set(results.map(({ request }) => request.region))).toEqual(new Set([0, 1]));
});

test("a row has the share that was answered in another region, and the mean way", async () => {
  const options = regionalRun({ policy: "round_robin" });
  const record = await simulate(options, () => 0);
  const crossed = record.results.filter(({ request, engine }) => regionsOf(engine) !== request.region);
  const share = crossed.length / record.results.length;
  expect(share).toBeGreaterThan(0.4);
  expect(share).toBeLessThan(0.6);
  const row = createRow(record, options);
  expect(row.crossed).toBeCloseTo(share, 9);
  expect(row.network_ms).toBeCloseTo(22 + 78 * share, 6);
});

test("regions that are cells answer all of their own requests", async () => {
  const options = regionalRun({ variant: "apart" });
  const row = createRow(await simulate(options, () => 0), options);
  expect([row.crossed, row.network_ms]).toEqual([0, 22]);
});

test("engines have the parameters of their region", async () => {
  const { results } = await simulate(regionalRun({ policy: "round_robin", variant: "apart" }), () => 0);
  const fastest = (region: number): number =>
    results
      .filter(({ request }) => request.region === region)
      .reduce((least, { endMs, firstTokenMs, request }) => {
        return Math.min(least, (endMs - firstTokenMs) / (request.outputTokens - 1));
      }, Number.POSITIVE_INFINITY);
  expect(fastest(1)).toBeGreaterThan(fastest(0) + 11);
});

test("a run without regions says nothing of them", async () => {
  const options = smallRun({ requests: 20 });
  const row = createRow(await simulate(options, () => 0), options);
  expect(row).not.toHaveProperty("crossed");
  expect(row).not.toHaveProperty("network_ms");
});

test("the delay between routers is that of their regions", async () => {
  await expect(simulate(regionalRun({ linkDelayMs: 50 }), () => 0)).rejects.toThrow("is that of their regions");
});
