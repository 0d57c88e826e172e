import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { percentile } from "@espalier/simulator";
import type { RouterSample } from "../soak/samples.ts";
import { robustSlope, type Slope, type TimedValue } from "../soak/slope.ts";
import { plotSoak } from "../soak/soak-plot.ts";
import { runSoak, type SoakOptions, type SoakResult } from "../soak/soak-run.ts";
import { duration, text, whole } from "../support/params.ts";
import { defineSuite, figuresTable, reportOf, shown } from "../support/suite.ts";

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

type SoakSizes = Omit<SoakOptions, "ports" | "note">;

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
export const soakSuite = defineSuite({
  name: "soak",
  summary: "a mesh under load while engines and routers come and go: memory, handles, journals, equal digests",
  about: `
A mesh of routers (8 MiB for known prompts) and simulated engines with KV events, each a process, under conversations
that begin and end, while an engine is replaced, a router restarted, an engine killed and a router killed, in turn.
Sampled are memory, open files, delays of the event loop and journals of every router, and whether routers know the same
of engines' caches at the same events. It fails on a request that was lost, on a difference, and, in a run of thirty
minutes or more, on growth: a slope of the routers that were never restarted, after the first quarter and twenty minutes
or half of the run (for so long they may remember what was sent where), that would add a tenth in the time that is left.
Open files are those of these routers together, as clients choose whose connections they keep.`,
  params: {
    duration: duration({ help: "of the load: 90s, 30m, 1h", standard: "30m", most: "24h" }),
    routers: whole({ help: "of which the last one is restarted and killed", standard: 3, most: 16 }),
    engines: whole({ help: "simulated engines", standard: 4, most: 64 }),
    clients: whole({ help: "conversations at a time", standard: 6, most: 1_000 }),
    speed: whole({ placeholder: "X", help: "engine seconds per real second", standard: 4, most: 1_000 }),
    churn: duration({ help: "between two changes of the fleet", standard: "20s", most: "1h" }),
    plot: text("FILE", "where the plot goes", "soak.svg"),
  },
  async measure({ duration: durationMs, churn: churnMs, plot, ...counts }, note) {
    const sizes = { durationMs, ...counts, churnMs };
    const result = await runSoak({ ...sizes, ports: { clock: systemClock, scheduler: systemScheduler }, note });
    mkdirSync(dirname(plot), { recursive: true });
    writeFileSync(plot, plotSoak(result.samples));
    note(`the plot is ${plot}`);
    return soakReport(result, sizes);
  },
  table: soakTable,
});

/** Summarizes a run, and lists its failures. */
export function soakReport(result: SoakResult, params: SoakSizes) {
  const { samples, counts, churn, digestMismatches, settledMs } = result;
  const isJudged = params.durationMs >= judgedFromMs;
  const names = [...new Set(samples.map(({ router }) => router))].sort();
  // The last router is restarted and killed, even if it is the only one.
  const growth = growthOf(result, names.slice(0, params.routers - 1), params.durationMs);
  const of = (figure: (sample: RouterSample) => number, rank: number): number =>
    percentile(Float64Array.from(samples, figure).sort(), rank);
  const slopes = growth.filter(({ figure, per_hour }) => figure === "rss_mb" && per_hour !== undefined);
  const failures = [
    ...(counts.failed > 0 ? [`${counts.failed} requests were lost, the first: ${counts.failures[0]}`] : []),
    ...(counts.completed === 0 ? ["no request was answered"] : []),
    ...(digestMismatches.length > 0 ? [`digests differ ${digestMismatches.length} times: ${digestMismatches[0]}`] : []),
    ...(settledMs === undefined ? ["after the load the routers did not come to know the same"] : []),
    ...(isJudged ? growth.flatMap((row) => growthFailure(row, params.durationMs)) : []),
  ];
  return reportOf("soak", {
    params: { ...params, judged: isJudged },
    metrics: {
      ...(slopes.length > 0 ? { rss_slope_mb_per_h: Math.max(...slopes.map((row) => row.per_hour ?? 0)) } : {}),
      ...{ digest_mismatches: digestMismatches.length, failed_requests: counts.failed },
      ...{ requests: counts.requests, completed: counts.completed, sessions: counts.sessions, retried: counts.retried },
      ...{ cut_by_kills: counts.cutByKills, digests_compared: result.digestsCompared },
      ...(settledMs === undefined ? {} : { settled_ms: settledMs }),
      ...{ rss_mb_p50: of(({ rssMb }) => rssMb, 50), rss_mb_max: of(({ rssMb }) => rssMb, 100) },
      handles_max: of(({ handles }) => handles, 100),
      ...{
        loop_delay_ms_p50: of(({ loopMaxMs }) => loopMaxMs, 50),
        loop_delay_ms_max: of(({ loopMaxMs }) => loopMaxMs, 100),
      },
      journal_mb_max: of(({ journalMb }) => journalMb, 100),
      ...{ engines_replaced: churn.replaceEngine, engines_killed: churn.killEngine },
      ...{ routers_restarted: churn.restartRouter, routers_killed: churn.killRouter },
    },
    warnings: isJudged ? [] : ["slopes of a run below thirty minutes are not judged"],
    ...{ growth, failures },
  });
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

/** All figures, and the growth of each router that was never restarted. */
export function soakTable(report: ReturnType<typeof soakReport>): string {
  const cell = (value: number | undefined) => (value === undefined ? undefined : shown("", value));
  const rows = layOutTable(report.growth, [
    { header: "router", value: ({ router }) => router },
    { header: "of", value: ({ figure }) => figure },
    { header: "median", value: ({ median }) => cell(median) },
    { header: "grows per hour", value: (row) => cell(row.per_hour) },
    { header: "at least", value: (row) => cell(row.low_per_hour) },
  ]);
  return `${figuresTable(report)}\n${rows}`;
}
