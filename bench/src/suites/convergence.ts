import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { hasRedisServer, startRedisServer } from "@espalier/testing";
import { startMeshNodeProcess } from "../mesh-node/mesh-node-process.ts";
import type { Figures } from "../support/median-spread.ts";
import { flag, optional, quick, whole } from "../support/params.ts";
import { readTreeUsage } from "../support/process-tree.ts";
import { defineSuite, shown } from "../support/suite.ts";
import { measureConvergence } from "./convergence-run.ts";

const rates = [5_000, 50_000, 240_000];
const targets = 240;
const blocksPerTarget = 1_024;
/** Figures of a row that also appear in `metrics`, for the first rate. */
const metricNames = ["visible_p50_ms", "visible_p99_ms", "load_p50_ms", "load_p99_ms", "cpu_share_per_router"];
const otherNames = ["cpu_us_per_op", "bytes_per_s_per_link", "probes_not_seen_by_all"];
const redisNames = ["carrier_cpu_share", "outage_probes", "outage_probes_not_seen_by_all", "agree_again_ms"];
const outageMs = 10_000;

/** How fast routers come to the same knowledge. */
export const convergenceSuite = defineSuite({
  name: "convergence",
  summary: "milliseconds until all of 8 routers know a change, and what that costs",
  about: `
Convergence of 8 routers after a change at one of them: changes of blocks until they are in every index, and
load gauges until every router counts them. Eight processes over loopback, 240 targets; one row for each rate of block
changes over all routers: 5,000 a second (the metrics), 50,000, and 240,000 to show where it breaks.`,
  params: {
    seconds: whole({ help: "how long each rate is measured", standard: 30, quick: 2, most: 3_600 }),
    routers: whole({ help: "routers", standard: 8, quick: 3, most: 64 }),
    rate: optional(whole({ help: "only this rate of block changes a second", standard: 1, most: 10_000_000 })),
    redis: flag("the mesh goes through a Redis server of its own, which dies for 10 s after each rate"),
    quick: quick("two seconds of 5,000 a second, three routers"),
  },
  async measure({ seconds, routers, rate, redis, quick }, note) {
    if (redis && !hasRedisServer("convergence --redis")) throw new Error("redis-server is not installed");
    const rows: Figures[] = [];
    for (const ratePerS of rate === undefined ? rates.slice(0, quick ? 1 : undefined) : [rate]) {
      const sizes = { routers, targets, blocksPerTarget, ratePerS, durationMs: seconds * 1_000 };
      const ports = { startNode: startMeshNodeProcess, clock: systemClock, scheduler: systemScheduler };
      const figures = redis ? await withRedis(sizes, ports) : await measureConvergence(sizes, ports);
      rows.push({ rate_per_s: ratePerS, ...figures });
      note(`${ratePerS} changes/s: visible to all after ${rows.at(-1)?.visible_p50_ms?.toFixed(1)} ms (median)`);
    }
    return convergenceReport(rows, { routers, seconds, sharing: redis ? "redis" : "mesh" });
  },
  table: ({ rows }) => convergenceTable(rows),
});

async function withRedis(
  sizes: Parameters<typeof measureConvergence>[0],
  ports: Parameters<typeof measureConvergence>[1],
): Promise<Figures> {
  const server = await startRedisServer();
  try {
    const outage = { begin: server.kill, end: server.restart, durationMs: outageMs };
    const carrierCpuS = (): number => readTreeUsage(server.pid!).cpuSeconds;
    return await measureConvergence({ ...sizes, redisUrl: server.url, carrierCpuS }, ports, outage);
  } finally {
    await server.close();
  }
}

/** @param rows by rate; `metrics` has the figures of the first */
export function convergenceReport(
  rows: readonly Figures[],
  { routers, seconds, sharing }: { readonly routers: number; readonly seconds: number; readonly sharing: string },
) {
  const [first = {}] = rows;
  return {
    params: {
      routers,
      seconds,
      sharing,
      targets,
      blocks_per_target: blocksPerTarget,
      rate_per_s: first.rate_per_s ?? 0,
    },
    metrics: Object.fromEntries(metricNames.map((name) => [name, first[name] ?? 0])),
    warnings: [
      `${routers} routers share the cores of one machine with their engines and with what measures them: where the ` +
        "sum of their CPU shares nears the cores, delays are those of waiting for a core",
    ],
    rows,
  };
}

/** One line for each rate. */
export function convergenceTable(rows: readonly Figures[]): string {
  return layOutTable(
    rows,
    [
      "rate_per_s",
      "ops_per_s",
      ...metricNames,
      ...otherNames,
      ...redisNames.filter((name) => name in (rows[0] ?? {})),
    ].map((header) => ({
      header,
      value: (row) => shown(header, row[header] ?? 0),
    })),
  );
}
