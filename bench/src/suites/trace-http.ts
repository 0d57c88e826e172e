import { existsSync } from "node:fs";
import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { infiniteCacheBound } from "@espalier/simulator";
import { type PlannedRequest, planReplay } from "espalier-router";
import { ownName } from "../data-path/contenders.ts";
import { type InstalledPeer, installPeer } from "../peers/install-peer.ts";
import { cacheAware, products } from "../peers/products.ts";
import { benchModel } from "../support/bench-model.ts";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import { names, type ParamValues, quick, runs, text, whole } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, type Note, reportOf } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import { runTraceOnce, type TraceFleet } from "./trace-http-run.ts";

/** A kind of fleet with the medians of its runs; times are in engine seconds, except `duration_s`. */
export interface TraceRow {
  /** `espalier`, or the name of another product. */
  readonly router: string;
  readonly routers: number;
  readonly sharing: "mesh" | "none";
  readonly kv_events: boolean;
  /**
   * Figures. `relative` is the hit share divided by that of one router; `cpu_ratio` is the routers' CPU time divided by
   * that of as many routers that share nothing.
   */
  readonly [figure: string]: number | string | boolean;
}

/** A kind of fleet, and the figures of each of its runs. */
export interface MeasuredFleet {
  readonly fleet: TraceFleet;
  readonly runs: readonly Figures[];
}

/** 3.15 M tokens of KV cache per engine. */
const preset = "b200-moe";
const msPerSecond = 1_000;

export const traceHttpParams = {
  trace: text("FILE", "Mooncake, Qwen-Bailian, Azure or plain prompts", "../shared/traces/conversation_trace.jsonl.gz"),
  requests: whole({ help: "of its beginning", standard: 3_000, most: 100_000 }),
  seconds: whole({ help: "real seconds in which they are sent", standard: 32, most: 3_600 }),
  engines: whole({ help: "simulated engines", standard: 8, most: 256 }),
  policy: text("NAME", "how the router chooses", "cache_aware"),
  "kv-events": {
    placeholder: "HOW",
    help: "on, off, or on,off for rows of both (off)",
    read(flag: string, given = "off"): readonly boolean[] {
      const words = given.split(",");
      if (words.every((word) => word === "on" || word === "off")) return words.map((word) => word === "on");
      throw new UsageError(`${flag} must be on, off, or on,off`);
    },
  },
  peers: names(
    "such as smg,sglang-router: a row of one of each, which are installed",
    products.filter(({ policy }) => policy === cacheAware).map(({ name }) => name),
    { standard: [], shown: "none" },
  ),
  folder: text("DIR", "where they are installed", ".cache/peers"),
  runs: runs(3, 100, "runs, with other jitter, of which the medians count"),
  quick: quick("one run"),
};

type TraceHttpPlan = ParamValues<typeof traceHttpParams>;

/** Whether several routers find as much in caches as one does. */
export const traceHttpSuite = defineSuite({
  name: "trace-http",
  summary: "cache hits of a trace over HTTP through 1, 2 and 4 routers, with the mesh and without",
  about: `
The beginning of a trace over HTTP through one, two and four routers, with the mesh and without, each time with fresh
engines and routers. Engines run faster than in life, by as much as the trace is sped up. \`hit_share\` is the share of the
prompt tokens that the engines found in their caches, as they report it, and \`relative\` that over the one of one router.
What the mesh costs is the routers' CPU time over that of as many that share nothing; with events each of those reads all.`,
  params: traceHttpParams,
  async measure(plan, note) {
    if (!existsSync(plan.trace)) throw new Error(`no trace at ${plan.trace}: pass one with --trace FILE`);
    const peers = await Promise.all(
      products.filter(({ name }) => plan.peers.includes(name)).map((each) => installPeer(each, plan.folder, note)),
    );
    const { measured, bound } = await measureAll(plan, peers, note);
    return traceHttpReport(plan, measured, bound);
  },
  table: traceHttpTable,
});

/** The kinds of fleets with rows: one router first, because the others are compared with it. */
export function traceFleets(kvEvents: readonly boolean[]): readonly TraceFleet[] {
  return kvEvents.flatMap((on) => [
    { routers: 1, sharing: "none", kvEvents: on } as const,
    { routers: 2, sharing: "mesh", kvEvents: on } as const,
    { routers: 4, sharing: "mesh", kvEvents: on } as const,
    { routers: 2, sharing: "none", kvEvents: on } as const,
    { routers: 4, sharing: "none", kvEvents: on } as const,
  ]);
}

async function measureAll(
  plan: TraceHttpPlan,
  peers: readonly InstalledPeer[],
  note: Note,
): Promise<{ readonly measured: readonly MeasuredFleet[]; readonly bound: number | undefined }> {
  const { engines, policy, runs } = plan;
  const others = peers.map((peer): TraceFleet => ({ routers: 1, sharing: "none", kvEvents: false, peer }));
  const measured = [...traceFleets(plan["kv-events"]), ...others].map((fleet) => ({ fleet, runs: [] as Figures[] }));
  let bound: number | undefined;
  await repeatRuns({ runs, note }, async (seed, noteRun) => {
    for (const { fleet, runs: done } of measured) {
      const requests = await planRequests(plan, seed, fleet);
      bound = infiniteCacheBound(requests.map(({ trace }) => trace));
      const ports = { clock: systemClock, scheduler: systemScheduler };
      const speed = speedOf(requests, plan.seconds);
      const noteRow: Note = (line) => noteRun(`${nameOf(fleet)}: ${line}`);
      const row = await runTraceOnce({ fleet, requests, engines, preset, policy, speed, ports, note: noteRow });
      done.push(row);
      noteRow(`hit share ${row.hit_share?.toFixed(4)} in ${row.duration_s?.toFixed(0)} s`);
    }
  });
  return { measured, bound };
}

/** Token ids can be compared with the engines' KV events; text is what clients send. */
function planRequests(
  { trace, requests }: TraceHttpPlan,
  seed: number,
  { kvEvents }: TraceFleet,
): Promise<readonly PlannedRequest[]> {
  return planReplay({
    path: trace,
    limit: requests,
    model: benchModel,
    seed,
    prompts: kvEvents ? "tokens" : "text",
  });
}

/** The speed of the trace, and of the engines, at which its arrivals take this many seconds; at least real speed. */
export function speedOf(requests: readonly Pick<PlannedRequest, "trace">[], seconds: number): number {
  const spanMs = Math.max(0, ...requests.slice(-1).map(({ trace }) => trace.arrivalMs));
  return Math.max(1, spanMs / msPerSecond / seconds);
}

/** Joins runs into rows of medians. */
export function traceHttpReport(plan: TraceHttpPlan, measured: readonly MeasuredFleet[], bound: number | undefined) {
  const metrics: Record<string, number> = {};
  const without: Record<string, number> = {};
  const otherProducts: Record<string, Record<string, number>> = {};
  const spread: Record<string, ReturnType<typeof summarizeRuns>["spread"]> = {};
  const runsOf = (routers: number, sharing: TraceFleet["sharing"], kvEvents: boolean): readonly Figures[] =>
    measured.find(
      ({ fleet }) =>
        !fleet.peer && fleet.routers === routers && fleet.sharing === sharing && fleet.kvEvents === kvEvents,
    )?.runs ?? [];
  const rows = measured.map(({ fleet, runs }): TraceRow => {
    const { routers, sharing, kvEvents, peer } = fleet;
    const alone = runsOf(1, "none", kvEvents);
    const apart = sharing === "mesh" ? runsOf(routers, "none", kvEvents) : [];
    const summary = summarizeRuns(
      runs.map((run, at) => ({
        ...run,
        relative: ratio(run.hit_share, alone[at]?.hit_share),
        ...(apart[at] && { cpu_ratio: ratio(run.router_cpu_us_per_request, apart[at].router_cpu_us_per_request) }),
      })),
    );
    const router = peer?.product.name ?? ownName;
    const row = { ...summary.medians, router, routers, sharing, kv_events: kvEvents };
    spread[nameOf(fleet)] = summary.spread;
    if (peer) {
      const { hit_share = Number.NaN, router_cpu_us_per_request = Number.NaN } = summary.medians;
      otherProducts[router] = { hit_share, router_cpu_us_per_request };
      return row;
    }
    const suffix = `${routers}${kvEvents ? "_events" : ""}`;
    const into = routers > 1 && sharing === "none" ? without : metrics;
    into[`hit_share_${suffix}`] = summary.medians.hit_share ?? Number.NaN;
    if (routers > 1) into[`relative_${suffix}`] = summary.medians.relative!;
    if (summary.medians.cpu_ratio !== undefined) into[`mesh_cpu_ratio_${suffix}`] = summary.medians.cpu_ratio;
    return row;
  });
  const { quick: _, "kv-events": kvEvents, ...params } = plan;
  return reportOf("trace-http", {
    params: {
      ...{ ...params, peers: plan.peers.join(","), kvEvents: kvEvents.map((on) => (on ? "on" : "off")).join(",") },
      preset,
    },
    metrics: { ...metrics, ...(bound === undefined ? {} : { infinite_cache: bound }) },
    baselines: { without_mesh: without, ...otherProducts },
    spread,
    rows,
  });
}

function ratio(figure: number | undefined, of: number | undefined): number {
  return (figure ?? Number.NaN) / (of ?? Number.NaN);
}

function nameOf({ routers, sharing, kvEvents, peer }: TraceFleet): string {
  if (peer) return peer.product.name;
  const shared = routers === 1 ? "" : sharing === "mesh" ? ", mesh" : ", nothing shared";
  return `${routers} ${routers === 1 ? "router" : "routers"}${shared}${kvEvents ? ", KV events" : ""}`;
}

/** A line for each kind of fleet. */
export function traceHttpTable({ rows, spread, metrics }: ReturnType<typeof traceHttpReport>): string {
  const figure = (header: string, key: string, digits = 3) => ({
    header,
    digits,
    value(row: TraceRow) {
      const value = row[key];
      return typeof value === "number" ? value : undefined;
    },
  });
  const table = layOutTable(rows, [
    { header: "routers", value: (row) => row.routers },
    { header: "sharing", value: (row) => (row.router === ownName ? row.sharing : row.router) },
    { header: "KV events", value: (row) => (row.kv_events ? "on" : "off") },
    figure("hit share", "hit_share"),
    figure("relative", "relative"),
    {
      header: "extremes",
      value({ router, routers, sharing, kv_events: kvEvents }) {
        const name = router === ownName ? nameOf({ routers, sharing, kvEvents }) : router;
        const { min, max } = spread[name]?.relative ?? {};
        return min === undefined || max === undefined ? undefined : `${min.toFixed(3)} .. ${max.toFixed(3)}`;
      },
    },
    figure("ttft mean (s)", "ttft_mean_s"),
    figure("p90 (s)", "ttft_p90_s"),
    figure("tpot p99 (s)", "tpot_p99_s"),
    figure("goodput", "goodput_share"),
    figure("load cov", "load_cov"),
    figure("router CPU (us/request)", "router_cpu_us_per_request", 0),
    figure("of that without mesh", "cpu_ratio", 2),
    figure("cores per router", "router_cpu_share"),
  ]);
  const bound = metrics.infinite_cache;
  return bound === undefined ? table : `${table}an infinite shared cache would hold ${bound.toFixed(3)}\n`;
}
