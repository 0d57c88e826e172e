import { afterEach, expect, test } from "vitest";
import { prepareRequest } from "../src/data-path/prepared-request.ts";
import {
  type MeasuredRouters,
  routersFleets,
  routersReport,
  routersSuite,
  routersTable,
} from "../src/suites/routers.ts";
import { measureDirect, measureRouters } from "../src/suites/routers-run.ts";
import { hasCompiler, type Stoppable, startSystemsInProcess } from "./rig.ts";

const parts: Stoppable[] = [];
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

const figures = (rps: number, cpuUs: number) => ({
  ...{ rps, cpu_us_per_request: cpuUs, steady_cpu_us_per_request: 2 * cpuUs, added_p50_ms: 0.5, added_p99_ms: 4 },
});

const measured: readonly MeasuredRouters[] = [
  { fleet: { routers: 1, sharing: "none" }, runs: [figures(5_000, 200), figures(4_000, 250), figures(4_500, 220)] },
  { fleet: { routers: 2, sharing: "mesh" }, runs: [figures(2_500, 400), figures(2_000, 500), figures(2_400, 410)] },
  { fleet: { routers: 2, sharing: "none" }, runs: [figures(4_500, 220), figures(3_900, 250), figures(4_400, 230)] },
];

test("several routers are measured with the mesh and without, one router alone", () => {
  expect(routersFleets([1, 4])).toEqual([
    { routers: 1, sharing: "none" },
    { routers: 4, sharing: "mesh" },
    { routers: 4, sharing: "none" },
  ]);
});

test("the mesh's share is what routers without it do not take, run by run", () => {
  const { rows, metrics, baselines } = routersReport({ runs: 3 }, measured);
  expect(rows[1]?.medians.mesh_share).toBeCloseTo(0.45);
  expect(rows[1]?.spread.mesh_share?.min).toBeCloseTo(1 - 230 / 410);
  expect(rows[1]?.spread.mesh_share?.max).toBeCloseTo(0.5);
  expect(rows[0]?.medians).not.toHaveProperty("mesh_share");
  expect(metrics).toMatchObject({ rps_1: 4_500, rps_2: 2_400, cpu_us_per_request_2: 410 });
  expect(baselines.nothing_shared).toMatchObject({ rps_2: 4_400 });
  expect(baselines.nothing_shared).not.toHaveProperty("rps_1");
});

test("the table has a line for each fleet, with the extremes of its runs", () => {
  const lines = routersTable(routersReport({ runs: 3 }, measured))
    .trimEnd()
    .split("\n");
  expect(lines).toHaveLength(4);
  expect(lines[2]).toMatch(/^ *2 +mesh +2400 \(2000 \.\. 2500\) +410 \(400 \.\. 500\) +45\.\d %/);
});

test.each(["0", "65", "1,x", ""])("--routers %j is refused by name", async (given) => {
  await expect(routersSuite.run(["--routers", given], () => {})).rejects.toThrow(
    "--routers must be a whole number from 1 to 64",
  );
});

test.runIf(hasCompiler)(
  "a load goes to every router in turn, and their CPU time is added up",
  async () => {
    const { engine, routerUrl, bareUrl } = await startSystemsInProcess((part) => void parts.unshift(part));
    const request = prepareRequest({ bodyBytes: 4_096, messages: 2 });
    const load = { request, durationMs: 100, warmUpMs: 20, concurrency: 4, seed: 1 };
    const directMs = await measureDirect(engine.urls, load, engine.pid);
    expect(directMs.length).toBeGreaterThan(10);
    // Both are of this process.
    const listening = [routerUrl, bareUrl].map((url) => ({ url, adminUrl: url, meshAddress: null, picker: null }));
    const own = { routers: listening, pids: [process.pid, process.pid] };
    const both = await measureRouters(own, load, { enginePid: engine.pid, directMs });
    expect(both.rps).toBeGreaterThan(0);
    expect(both.cpu_us_per_request).toBeGreaterThan(0);
    expect(both.steady_cpu_us_per_request).toBeGreaterThan(0);
    expect(both.added_p99_ms).toSatisfy(Number.isFinite);
  },
  30_000,
);
