import { afterEach, expect, test } from "vitest";
import { bareName, ownName } from "../src/data-path/contenders.ts";
import { measureDataPath } from "../src/data-path/measure-data-path.ts";
import { type ProxyRun, proxyReport, proxyRun } from "../src/suites/proxy.ts";
import { contenderAt, hasCompiler, type Stoppable, startAnswering, startSystemsInProcess, tinySizes } from "./rig.ts";

const parts: Stoppable[] = [];
const keep = (part: Stoppable): void => void parts.unshift(part);
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

const routerKeys = [
  "rps_4k",
  "cpu_us_4k",
  "cpu_us_4k_cold",
  "rps_48k",
  "cpu_us_48k",
  "cpu_us_48k_cold",
  "cpu_us_48k_late",
  "cpu_us_200k",
  "cpu_us_400k",
  "rps_sse",
  "cpu_us_sse",
  "cpu_us_per_chunk",
  "first_byte_p99_ms",
  "first_byte_of_64_p99_ms",
  "added_48k_300rps_p50_ms",
  "added_48k_300rps_p99_ms",
  "rss_growth_mb",
];

/** @param url of the router; the one of this process when absent */
async function run(url?: string, note: (line: string) => void = () => {}): Promise<ProxyRun> {
  const { engine, bareUrl, routerUrl, tokenUrl } = await startSystemsInProcess(keep);
  const contenders = [
    contenderAt(bareName, bareUrl).contender,
    contenderAt(ownName, url ?? routerUrl).contender,
    contenderAt(`${ownName} with tokens`, tokenUrl, { isTokenized: true }).contender,
    contenderAt(`${ownName}@24`, routerUrl).contender,
  ];
  const options = { isRoundRobinToo: false, isCheckedByWrk: false, note };
  return proxyRun(await measureDataPath({ contenders, engine, sizes: tinySizes, ...options }, 1));
}

test.runIf(hasCompiler)("a run measures every figure at all systems, and the report has the fixed keys", async () => {
  const lines: string[] = [];
  const measured = await run(undefined, (line) => lines.push(line));
  const report = proxyReport([measured], undefined);
  expect(Object.keys(report.metrics)).toEqual(expect.arrayContaining(routerKeys));
  const ofRouterAlone = ["token_cpu_us_48k", "token_rps_48k", "token_cpu_us_200k_agent"];
  expect(Object.keys(report.metrics)).toEqual([...Object.keys(report.baselines.bare ?? {}), ...ofRouterAlone]);
  expect(Object.keys(report.baselines["espalier@24"] ?? {})).toEqual(Object.keys(report.baselines.bare ?? {}));
  expect(Object.keys(report.baselines.direct ?? {})).toEqual(expect.arrayContaining(["rps_4k", "rps_48k", "rps_sse"]));
  for (const figures of [report.metrics, ...Object.values(report.baselines)]) {
    for (const [name, value] of Object.entries(figures)) expect(value, name).toSatisfy(Number.isFinite);
  }
  for (const name of ["rps_4k", "rps_48k", "rps_sse", "rps_200k", "rps_400k"]) {
    expect(report.metrics[name], name).toBeGreaterThan(0);
    expect(report.baselines.bare?.[name], name).toBeGreaterThan(0);
  }
  // Each load that says something of the engine; every load and the cold one at three systems; two kinds of turns.
  expect(lines).toHaveLength(6 + 3 * 14 + 2);
});

test.runIf(hasCompiler)("a request that a router refuses ends the run with an error that names it", async () => {
  const url = await startAnswering((request, response) => {
    request.resume().on("end", () => response.writeHead(503).end("no engine"));
  }, keep);
  await expect(run(url)).rejects.toThrow(/^a request to espalier failed: answered HTTP\/1\.1 503 .*no engine/);
});

const shares = (load: number, engine: number) => ({ system: 0.5, load, engine });
const runWith = (figure: number, load: number, engine: number): ProxyRun => ({
  systems: { espalier: { rps_4k: figure }, bare: { rps_4k: 2 * figure }, direct: { rps_4k: 10 * figure } },
  shares: { small: { direct: shares(0.6, 0.4), bare: shares(0.2, 0.2), espalier: shares(load, engine) } },
});

test("figures are medians over the runs, with their extremes", () => {
  const report = proxyReport([runWith(30, 0, 0), runWith(10, 0, 0), runWith(20, 0, 0)], undefined);
  expect(report.metrics).toEqual({ rps_4k: 20 });
  expect(report.baselines).toEqual({ bare: { rps_4k: 40 }, direct: { rps_4k: 200 } });
  expect(report.spread.espalier).toEqual({ rps_4k: { min: 10, max: 30 } });
  expect(report.warnings).toEqual([]);
});

test.each([
  { load: 0.5, engine: 0.44, otherCores: [0], warned: false },
  { load: 0.5, engine: 0.46, otherCores: [0], warned: true },
  { load: 0.5, engine: 0.46, otherCores: [0, 1], warned: false },
  { load: 0.96, engine: 0.1, otherCores: [0, 1], warned: true },
])("load $load and engine $engine on cores $otherCores warn: $warned", ({ load, engine, otherCores, warned }) => {
  const report = proxyReport([runWith(1, load, engine)], otherCores.length);
  // The engine asked directly was saturated as well, as it must be.
  expect(report.warnings).toEqual(warned ? [expect.stringMatching(/^small at espalier/)] : []);
});
