import { type ProxyFleet, type ProxyRun, proxyReport, proxyTable, runProxyOnce } from "@espalier/bench";
import { systemClock, systemScheduler } from "@espalier/common";
import { afterEach, expect, test } from "vitest";
import { type Stoppable, startAnswering, startFleetInProcess, tinySizes } from "./rig.ts";

const parts: Stoppable[] = [];
const keep = (part: Stoppable): void => void parts.unshift(part);
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

const routerKeys = [
  "rps_4k",
  "cpu_us_4k",
  "rps_48k",
  "cpu_us_48k",
  "rps_sse",
  "cpu_us_sse",
  "cpu_us_per_chunk",
  "first_byte_p99_ms",
  "added_48k_300rps_p50_ms",
  "added_48k_300rps_p99_ms",
  "rss_growth_mb",
];

const run = (fleet: ProxyFleet, note: (line: string) => void = () => {}): Promise<ProxyRun> =>
  runProxyOnce(fleet, { sizes: tinySizes, seed: 1, clock: systemClock, scheduler: systemScheduler, note });

test("a run measures every figure at all three systems, and the report has the fixed keys", async () => {
  const lines: string[] = [];
  const measured = await run(await startFleetInProcess(keep), (line) => lines.push(line));
  const report = proxyReport([measured], { runs: 1, pinned: false }, undefined);
  expect(report.name).toBe("proxy");
  expect(Object.keys(report.metrics)).toEqual(expect.arrayContaining(routerKeys));
  const ofRouterAlone = ["token_cpu_us_48k", "token_rps_48k", "token_cpu_us_200k_agent"];
  expect(Object.keys(report.metrics)).toEqual([...Object.keys(report.baselines.bare ?? {}), ...ofRouterAlone]);
  expect(Object.keys(report.baselines.direct ?? {})).toEqual(expect.arrayContaining(["rps_4k", "rps_48k", "rps_sse"]));
  for (const figures of [report.metrics, ...Object.values(report.baselines)]) {
    for (const [name, value] of Object.entries(figures)) expect(value, name).toSatisfy(Number.isFinite);
  }
  for (const name of ["rps_4k", "cpu_us_4k", "rps_48k", "cpu_us_48k", "rps_sse", "cpu_us_sse"]) {
    expect(report.metrics[name], name).toBeGreaterThan(0);
    expect(report.baselines.bare?.[name], name).toBeGreaterThan(0);
  }
  // One line for the memory of each router, one for each load and system, and two of the router that tokenizes.
  expect(lines).toHaveLength(2 + 5 * 3 + 2);
});

test("a request that a router refuses ends the run with an error that names it", async () => {
  const fleet = await startFleetInProcess(keep);
  const url = await startAnswering((request, response) => {
    if (request.url === "/metrics") {
      response.end("process_cpu_seconds_total 1\nprocess_resident_memory_bytes 1\n");
      return;
    }
    request.resume().on("end", () => response.writeHead(503).end("no engine"));
  }, keep);
  const [direct, bare] = fleet.systems;
  const broken = { name: "espalier", urls: [url], metricsUrl: `${url}/metrics` };
  await expect(run({ ...fleet, systems: [direct, bare, broken] })).rejects.toThrow(
    /^a request to espalier failed: answered HTTP\/1\.1 503 .*no engine/,
  );
});

const shares = (load: number, engine: number) => ({ system: 0.5, load, engine });
const runWith = (figure: number, load: number, engine: number): ProxyRun => ({
  direct: { rps_4k: 10 * figure },
  bare: { rps_4k: 2 * figure },
  espalier: { rps_4k: figure },
  shares: { small: { direct: shares(0.6, 0.4), bare: shares(0.2, 0.2), espalier: shares(load, engine) } },
});

test("figures are medians over the runs, with their extremes", () => {
  const report = proxyReport([runWith(30, 0, 0), runWith(10, 0, 0), runWith(20, 0, 0)], { pinned: true }, undefined);
  expect(report.metrics).toEqual({ rps_4k: 20 });
  expect(report.baselines).toEqual({ bare: { rps_4k: 40 }, direct: { rps_4k: 200 } });
  expect(report.spread.espalier).toEqual({ rps_4k: { min: 10, max: 30 } });
  expect(report.warnings).toEqual([]);
  const table = proxyTable(report);
  expect(table).toMatch(/^figure +espalier +bare +direct\nrps_4k +20\.0 \(10\.0 \.\. 30\.0\) +40\.0/);
  expect(table).not.toContain("Not pinned");
});

test.each([
  { load: 0.5, engine: 0.44, otherCores: [0], warned: false },
  { load: 0.5, engine: 0.46, otherCores: [0], warned: true },
  { load: 0.5, engine: 0.46, otherCores: [0, 1], warned: false },
  { load: 0.96, engine: 0.1, otherCores: [0, 1], warned: true },
])("load $load and engine $engine on cores $otherCores warn: $warned", ({ load, engine, otherCores, warned }) => {
  const plan = { router: [9], others: otherCores };
  const report = proxyReport([runWith(1, load, engine)], { pinned: false }, plan);
  // The engine asked directly was saturated as well, as it must be.
  expect(report.warnings).toHaveLength(warned ? 1 : 0);
  const table = proxyTable(report);
  expect(table.includes("Warning: small at espalier")).toBe(warned);
  expect(table).toContain("Not pinned to cores");
});
