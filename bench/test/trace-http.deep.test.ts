import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock, systemScheduler } from "@espalier/core";
import { sharedPath } from "@espalier/testing";
import { planReplay } from "espalier-router";
import { expect, onTestFinished, test, vi } from "vitest";
import { traceHttpSuite } from "../src/suites/trace-http.ts";
import { runTraceOnce, type TraceFleet, type TraceRunOptions } from "../src/suites/trace-http-run.ts";
import { benchModel } from "../src/support/bench-model.ts";

// Fleets are processes of what has been built; here they run from the sources, in this process.
vi.mock(import("espalier-router"), async (original) => {
  const { startEnginesHere, startRoutersHere } = await import("./in-process-fleet.ts");
  return { ...(await original()), startLocalEngines: startEnginesHere, startRouters: startRoutersHere };
});

const sessions = 8;
const turns = 3;

/** Sessions of which each turn goes on with the one before: what an engine has seen is most of the next prompt. */
function traceFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-trace-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const rows = Array.from({ length: sessions * turns }, (_, at) => {
    const session = at % sessions;
    const turn = Math.floor(at / sessions);
    const blocks = Array.from({ length: 2 * turn + 3 }, (_, block) => 1_000 * (session + 1) + block);
    // Not on whole steps of 3 s, so that the times are taken as they are.
    return { timestamp: 4_100 * at, input_length: 512 * blocks.length, output_length: 2, hash_ids: blocks };
  });
  const path = join(folder, "trace.jsonl");
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  return path;
}

async function optionsOf(fleet: TraceFleet, path: string): Promise<TraceRunOptions & { readonly lines: string[] }> {
  const lines: string[] = [];
  const prompts = fleet.kvEvents ? "tokens" : "text";
  return {
    fleet,
    requests: await planReplay({ path, model: benchModel, seed: 1, prompts }),
    engines: 4,
    preset: "h100-32b-tp2",
    policy: "cache_aware",
    speed: 50,
    ports: { clock: systemClock, scheduler: systemScheduler },
    note: (line) => void lines.push(line),
    lines,
  };
}

const mostOfAll = (sharing: "mesh" | "none", routers = 2, kvEvents = false): TraceFleet => ({
  routers,
  sharing,
  kvEvents,
});

test("two routers with the mesh find what engines hold, whichever of them took the turn before", async () => {
  const path = traceFile();
  const options = await optionsOf(mostOfAll("mesh"), path);
  const figures = await runTraceOnce(options);
  expect(figures.requests).toBe(sessions * turns);
  // Without evictions 5 of 15 blocks of a session's prompts are new in its second and third turn: 8 of 15 are held.
  expect(figures.hit_share).toBeGreaterThan(0.45);
  expect(figures.hit_share).toBeLessThan(0.56);
  expect(figures.router_cpu_us_per_request).toBeGreaterThan(0);
  expect(figures.ttft_mean_s).toBeGreaterThan(0);
  expect(options.lines).toHaveLength(4);
  expect(options.lines.at(-1)).toBe("24 of 24 answers");
}, 40_000);

test("with KV events one router reads of engines what it has not sent itself", async () => {
  const path = traceFile();
  const figures = await runTraceOnce(await optionsOf(mostOfAll("none", 1, true), path));
  expect(figures.hit_share).toBeGreaterThan(0.45);
}, 40_000);

test("the whole suite on a small trace has a row for each kind of fleet, compared with one router", async () => {
  const lines: string[] = [];
  const flags = `--trace ${traceFile()} --runs 1 --seconds 2 --engines 2 --policy round_robin`;
  const { report, table } = await traceHttpSuite.run(flags.split(" "), (line) => void lines.push(line));
  const { rows } = report as unknown as { rows: readonly Record<string, unknown>[] };
  expect(rows.map(({ routers, sharing }) => `${routers} ${sharing}`)).toEqual([
    "1 none",
    "2 mesh",
    "4 mesh",
    "2 none",
    "4 none",
  ]);
  expect(rows[0]?.relative).toBe(1);
  for (const row of rows) expect(row.requests).toBe(sessions * turns);
  expect(report.metrics.infinite_cache).toBeCloseTo(8 / 15, 1);
  expect(table.split("\n")[0]).toContain("hit share");
  expect(lines.filter((line) => line.includes("hit share"))).toHaveLength(5);
}, 60_000);

test("a request that fails ends the run with an error that says why", async () => {
  const options = await optionsOf(mostOfAll("none", 1), traceFile());
  const requests = options.requests.map((request) => ({ ...request, path: "/v1/nowhere" }));
  await expect(runTraceOnce({ ...options, requests })).rejects.toThrow(
    /^24 of 24 requests failed:\n {2}24 x path_not_found: status 404/,
  );
}, 30_000);

test("the beginning of the recorded trace runs through the mesh", async ({ skip }) => {
  const path = sharedPath("traces", "conversation_trace.jsonl.gz");
  if (path === undefined) return skip();
  const options = await optionsOf(mostOfAll("mesh"), path);
  const requests = options.requests.slice(0, 20);
  const figures = await runTraceOnce({ ...options, requests, preset: "b200-moe" });
  expect(figures.requests).toBe(20);
  expect(figures.hit_share).toBeGreaterThan(0);
}, 40_000);
