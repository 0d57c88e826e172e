import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { formatTable, percentile } from "@espalier/simulator";
import type { RouterSample } from "../soak/samples.ts";
import { robustSlope, type Slope, type TimedValue } from "../soak/slope.ts";
import { plotSoak } from "../soak/soak-plot.ts";
import { runSoak, type SoakResult } from "../soak/soak-run.ts";
import { readDurationMs, readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";

/** The report with the growth of each router that was never restarted. */
export interface SoakReport extends BenchReport {
  readonly growth: readonly GrowthRow[];
  /** Why the run failed, as sentences; empty when it did not. */
  readonly failures: readonly string[];
}

/** Growth of one figure after the warm-up. */
export interface GrowthRow {
  /**
   * The router's name, or all names for a joint figure. Clients choose whose connections they keep, so open files are
   * counted together.
   */
  readonly router: string;
  readonly figure: GrowthName;
  readonly median: number;
  /** Absent when there were too few samples. */
  readonly per_hour?: number;
  readonly low_per_hour?: number;
}

const growthFigures = {
  rss_mb: ({ rssMb }: RouterSample) => rssMb,
  heap_mb: ({ heapMb }: RouterSample) => heapMb,
  journal_mb: ({ journalMb }: RouterSample) => journalMb,
} as const;

type GrowthName = keyof typeof growthFigures | "handles";

interface SoakPlan {
  readonly durationMs: number;
  readonly engines: number;
  readonly routers: number;
  readonly clients: number;
  readonly speed: number;
  readonly churnMs: number;
  readonly plot: string;
}

const help = `Usage: npm run bench -- soak [options]

A mesh of routers (8 MiB for known prompts) and simulated engines with KV events, each a process, under conversations
that begin and end, while an engine is replaced, a router restarted, an engine killed and a router killed, in turn.
Sampled are memory, open files, delays of the event loop and journals of every router, and whether routers know the same
of engines' caches at the same events. It fails on a request that was lost, on a difference, and, in a run of thirty
minutes or more, on growth: a slope of the routers that were never restarted, after the first quarter and twenty minutes
or half of the run (for so long they may remember what was sent where), that would add a tenth in the time that is left.
Open files are those of these routers together, as clients choose whose connections they keep.

  --duration T   of the load: 90s, 30m, 1h (30m)
  --routers N    of which the last one is restarted and killed (3)
  --engines N    (4)
  --clients N    conversations at a time (6)
  --speed X      engine seconds per real second (4)
  --churn T      between two changes of the fleet (20s)
  --plot FILE    where the plot goes (soak.svg)
  --json         one JSON object on standard output
`;

/** Slopes count only in runs of at least this length. */
const judgedFromMs = 1_800_000;
/** Share of the run in which caches fill and code is compiled. */
const warmUpShare = 0.25;
/**
 * Routers keep placements for ten minutes, and the chains that they refer to for another ten before that. Memory and
 * journals grow for that time, of which at most half of the run is excluded.
 */
const rememberedMs = 1_200_000;
/** Growth over the measured time that is allowed, as a share of the median. */
const allowedGrowth = 0.1;
const msPerHour = 3_600_000;

/** Whether anything grows, gets lost or diverges while parts of a fleet are replaced. */
export const soakSuite: Suite = {
  name: "soak",
  summary: "a mesh under load while engines and routers come and go: memory, handles, journals, equal digests",
  help,
  async run(args, note) {
    const { plot, ...plan } = readSoakPlan(args);
    const result = await runSoak({ ...plan, ports: { clock: systemClock, scheduler: systemScheduler }, note });
    mkdirSync(dirname(plot), { recursive: true });
    writeFileSync(plot, plotSoak(result.samples));
    note(`the plot is ${plot}`);
    const report = soakReport(result, plan);
    const failure = report.failures.length > 0 ? report.failures.join("; ") : undefined;
    return { report, table: () => soakTable(report), ...(failure === undefined ? {} : { failure }) };
  },
};

/** @throws UsageError */
export function readSoakPlan(args: readonly string[]): SoakPlan {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ duration: text, routers: text, engines: text, clients: text, speed: text, churn: text },
      plot: { type: "string", default: "soak.svg" },
    },
  });
  return {
    durationMs: readDurationMs("--duration", values.duration, { standard: "30m", max: "24h" }),
    routers: readWhole("--routers", values.routers, { standard: 3, max: 16 }),
    engines: readWhole("--engines", values.engines, { standard: 4, max: 64 }),
    clients: readWhole("--clients", values.clients, { standard: 6, max: 1_000 }),
    speed: readWhole("--speed", values.speed, { standard: 4, max: 1_000 }),
    churnMs: readDurationMs("--churn", values.churn, { standard: "20s", max: "1h" }),
    plot: values.plot,
  };
}

/** Summarizes a run, and lists its failures. */
export function soakReport(result: SoakResult, params: Omit<SoakPlan, "plot">): SoakReport {
  const { samples, counts, churn, digestMismatches, settledMs } = result;
  const isJudged = params.durationMs >= judgedFromMs;
  const names = [...new Set(samples.map(({ router }) => router))].sort();
  // The last router is restarted and killed, even if it is the only one.
  const growth = growthOf(result, names.slice(0, params.routers - 1), params.durationMs);
  const of = (values: readonly number[], rank: number): number => percentile(Float64Array.from(values).sort(), rank);
  const slopes = growth.filter(({ figure, per_hour }) => figure === "rss_mb" && per_hour !== undefined);
  const failures = [
    ...(counts.failed > 0 ? [`${counts.failed} requests were lost, the first: ${counts.failures[0]}`] : []),
    ...(counts.completed === 0 ? ["no request was answered"] : []),
    ...(digestMismatches.length > 0 ? [`digests differ ${digestMismatches.length} times: ${digestMismatches[0]}`] : []),
    ...(settledMs === undefined ? ["after the load the routers did not come to know the same"] : []),
    ...(isJudged ? growth.flatMap((row) => growthFailure(row, params.durationMs)) : []),
  ];
  return {
    name: "soak",
    params: { ...params, judged: isJudged },
    metrics: {
      ...(slopes.length > 0 ? { rss_slope_mb_per_h: Math.max(...slopes.map((row) => row.per_hour ?? 0)) } : {}),
      digest_mismatches: digestMismatches.length,
      failed_requests: counts.failed,
      ...{ requests: counts.requests, completed: counts.completed, sessions: counts.sessions, retried: counts.retried },
      cut_by_kills: counts.cutByKills,
      digests_compared: result.digestsCompared,
      ...(settledMs === undefined ? {} : { settled_ms: settledMs }),
      rss_mb_p50: of(
        samples.map(({ rssMb }) => rssMb),
        50,
      ),
      rss_mb_max: of(
        samples.map(({ rssMb }) => rssMb),
        100,
      ),
      handles_max: of(
        samples.map(({ handles }) => handles),
        100,
      ),
      loop_delay_ms_p50: of(
        samples.map(({ loopMaxMs }) => loopMaxMs),
        50,
      ),
      loop_delay_ms_max: of(
        samples.map(({ loopMaxMs }) => loopMaxMs),
        100,
      ),
      journal_mb_max: of(
        samples.map(({ journalMb }) => journalMb),
        100,
      ),
      ...{ engines_replaced: churn.replaceEngine, engines_killed: churn.killEngine },
      ...{ routers_restarted: churn.restartRouter, routers_killed: churn.killRouter },
    },
    ...{ baselines: {}, spread: {}, shares: [], growth, failures },
    warnings: isJudged ? [] : ["slopes of a run below thirty minutes are not judged"],
  };
}

/** The start of a run that is excluded from growth. */
function warmUpMs(durationMs: number): number {
  return Math.max(warmUpShare * durationMs, Math.min(rememberedMs, durationMs / 2));
}

function growthOf({ samples }: SoakResult, routers: readonly string[], durationMs: number): readonly GrowthRow[] {
  const late = samples.filter(({ router, atMs }) => routers.includes(router) && atMs >= warmUpMs(durationMs));
  const rows = routers.flatMap((router) => {
    const own = late.filter((sample) => sample.router === router);
    return (Object.keys(growthFigures) as (keyof typeof growthFigures)[]).map((figure) =>
      growthRow(
        router,
        figure,
        own.map((sample) => ({ atH: sample.atMs / msPerHour, value: growthFigures[figure](sample) })),
      ),
    );
  });
  return [...rows, growthRow(routers.join(" + "), "handles", handlesTogether(late, routers.length))].flatMap(
    (row) => row ?? [],
  );
}

function growthRow(router: string, figure: GrowthName, values: readonly TimedValue[]): GrowthRow | undefined {
  if (values.length === 0) return undefined;
  const sorted = Float64Array.from(values, ({ value }) => value).sort();
  const slope: Slope | undefined = robustSlope(values);
  const slopes = slope && { per_hour: slope.perHour, low_per_hour: slope.lowPerHour };
  return { router, figure, median: percentile(sorted, 50), ...slopes };
}

/** At the times when every router has answered. */
function handlesTogether(samples: readonly RouterSample[], routers: number): readonly TimedValue[] {
  const byTime = new Map<number, { count: number; handles: number }>();
  for (const { atMs, handles } of samples) {
    const sum = byTime.get(atMs) ?? { count: 0, handles: 0 };
    byTime.set(atMs, { count: sum.count + 1, handles: sum.handles + handles });
  }
  return [...byTime].flatMap(([atMs, { count, handles }]) =>
    count < routers ? [] : { atH: atMs / msPerHour, value: handles },
  );
}

function growthFailure(row: GrowthRow, durationMs: number): readonly string[] {
  const { router, figure, median, per_hour: perHour = 0, low_per_hour: low = 0 } = row;
  const grown = (perHour * (durationMs - warmUpMs(durationMs))) / msPerHour;
  if (low <= 0 || grown <= allowedGrowth * median) return [];
  return [`${figure} of ${router} grows by ${perHour.toFixed(2)} an hour, from a median of ${median.toFixed(1)}`];
}

/** The report for a terminal. */
export function soakTable({ metrics, growth, warnings, failures }: SoakReport): string {
  const short = (value: number | undefined): string | undefined => value?.toFixed(Math.abs(value) >= 100 ? 0 : 2);
  const figures = formatTable(Object.entries(metrics), [
    { header: "figure", value: ([name]) => name },
    { header: "value", value: ([, value]) => short(value) },
  ]);
  const rows = formatTable(growth, [
    { header: "router", value: ({ router }) => router },
    { header: "of", value: ({ figure }) => figure },
    { header: "median", value: ({ median }) => short(median) },
    { header: "grows per hour", value: (row) => short(row.per_hour) },
    { header: "at least", value: (row) => short(row.low_per_hour) },
  ]);
  const notes = [...warnings.map((line) => `Warning: ${line}.\n`), ...failures.map((line) => `Failed: ${line}.\n`)];
  return `${figures}\n${rows}${notes.join("")}`;
}
