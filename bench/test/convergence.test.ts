import { systemClock } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { MeshNodeOptions, MeshNodeStats } from "../src/mesh-node/mesh-node-messages.ts";
import { convergenceReport, convergenceTable } from "../src/suites/convergence.ts";
import { convergenceFigures, measureConvergence, outageFigures } from "../src/suites/convergence-run.ts";

const nothing: MeshNodeStats = {
  ...{ elapsedMs: 10_000, cpuMs: 500, ops: 5_000, messages: 0, skippedOps: 0, stallMs: 0, busyStallMs: 0 },
  ...{ sentBytes: 40_000, receivedBytes: 0, probesSent: [], gaugesSent: [], probesSeen: {}, gaugesSeen: {} },
  ...{ blocks: 0, indexBytes: 0, journalBytes: 0, foldBytes: 0, residentBytes: 0 },
};

test("a change is visible when the last of the other routers has it", () => {
  const sent = { ...nothing, probesSent: [[0, 1_000] as const, [1, 1_100] as const, [2, 1_200] as const] };
  const early = { ...nothing, probesSeen: { a: [[0, 1_010] as const, [1, 1_120] as const, [2, 1_205] as const] } };
  const late = { ...nothing, probesSeen: { a: [[0, 1_030] as const, [1, 1_110] as const] } };
  const figures = convergenceFigures([sent, nothing, nothing], [sent, early, late], ["a", "b", "c"]);
  expect(figures).toMatchObject({ visible_p50_ms: 30, visible_p99_ms: 30, probes: 2, probes_not_seen_by_all: 1 });
});

test("after an outage all agree when the last router has the last of its changes", () => {
  const sent = { ...nothing, probesSent: [[0, 1_000] as const, [1, 2_000] as const, [2, 3_000] as const] };
  const early = { ...nothing, probesSeen: { a: [[0, 1_010] as const, [1, 5_200] as const, [2, 5_200] as const] } };
  const late = { ...nothing, probesSeen: { a: [[0, 1_020] as const, [1, 5_700] as const] } };
  const figures = outageFigures([sent, nothing, nothing], [sent, early, late], ["a", "b", "c"], 5_000);
  expect(figures).toEqual({ outage_probes: 3, outage_probes_not_seen_by_all: 1, agree_again_ms: 700 });
});

test("a router may not see its own changes, and gauges count apart from probes", () => {
  const one = { ...nothing, gaugesSent: [[0, 50] as const] };
  const other = { ...nothing, gaugesSeen: { a: [[0, 54] as const] }, gaugesSent: [[0, 60] as const] };
  const seen = { ...one, gaugesSeen: { b: [[0, 68] as const] } };
  const figures = convergenceFigures([one, other], [seen, other], ["a", "b"]);
  expect(figures).toMatchObject({ load_p50_ms: 8, load_p99_ms: 8, visible_p50_ms: 0, probes: 0 });
});

test("costs are per router, per change of the whole mesh, and per link", () => {
  const busy = { ...nothing, cpuMs: 1_500, skippedOps: 5_000 };
  const figures = convergenceFigures([nothing, busy, nothing], [nothing, busy, nothing], ["a", "b", "c"]);
  expect(figures.cpu_share_per_router).toBeCloseTo((0.05 + 0.15 + 0.05) / 3);
  expect(figures.cpu_us_per_op).toBeCloseTo((2_500 / 3 / 15_000) * 1_000);
  expect(figures.bytes_per_s_per_link).toBe(2_000);
  expect(figures.ops_per_s).toBe(1_500);
  expect(figures.skipped_share).toBe(0.25);
});

test("the report has the fixed keys, of the first rate, and a row for each", () => {
  const figures = convergenceFigures([nothing, nothing], [nothing, nothing], ["a", "b"]);
  const rows = [5_000, 50_000].map((rate) => ({ rate_per_s: rate, ...figures, visible_p50_ms: rate / 1_000 }));
  const report = convergenceReport(rows, { routers: 2, seconds: 10, sharing: "mesh" });
  const keys = ["cpu_share_per_router", "load_p50_ms", "load_p99_ms", "visible_p50_ms", "visible_p99_ms"];
  expect(Object.keys(report.metrics).sort()).toEqual(keys);
  expect(report.metrics.visible_p50_ms).toBe(5);
  expect(report.rows).toEqual(rows);
  expect(convergenceTable(report.rows).trimEnd().split("\n")).toHaveLength(3);
  expect(report.warnings).toEqual([expect.stringContaining("share the cores")]);
});

test("routers get their share of targets and changes, are measured, and are stopped whatever happens", async () => {
  const time = createVirtualTime();
  const started: MeshNodeOptions[] = [];
  let stopped = 0;
  const sizes = { routers: 2, targets: 5, blocksPerTarget: 8, ratePerS: 100, durationMs: 0 };
  const failing = measureConvergence(sizes, {
    clock: systemClock,
    scheduler: time.scheduler,
    async startNode(options) {
      started.push(options);
      return {
        address: `127.0.0.1:${started.length}`,
        ask: async () => {
          throw new Error("the node is gone");
        },
        stop: async () => {
          stopped++;
        },
      };
    },
  });
  await expect(failing).rejects.toThrow("the node is gone");
  expect(stopped).toBe(2);
  expect(started.map(({ ratePerS }) => ratePerS)).toEqual([50, 50]);
  expect(started.map((options) => options.targets.length)).toEqual([3, 2]);
  expect(started.map((options) => options.seeds)).toEqual([[], ["127.0.0.1:1"]]);
});
