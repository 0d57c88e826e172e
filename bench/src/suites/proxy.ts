import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { startBenchEngine } from "../data-path/bench-engine.ts";
import { bareContender, bareName, type Contender, ownContender, ownName, thisNode } from "../data-path/contenders.ts";
import {
  agentMessages,
  agentTools,
  burstStreams,
  concurrency,
  type LoadSizes,
  largeBodyBytes,
  largeMessages,
  longBodyBytes,
  longestBodyBytes,
  newTurnBytes,
  smallBodyBytes,
  steadyPerSecond,
  streamGapMs,
  streamsPerSecond,
  streamTokens,
} from "../data-path/loads.ts";
import {
  type DataPathRun,
  measureDataPath,
  type SharesByLoad,
  saturationWarnings,
} from "../data-path/measure-data-path.ts";
import { installReleases } from "../data-path/node-releases.ts";
import { cacheAware } from "../peers/products.ts";
import { type CorePlan, reserveCore } from "../support/cpu-pinning.ts";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import { readPositive, readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";

interface ProxyOptions {
  readonly sizes: LoadSizes;
  readonly runs: number;
  readonly nodeReleases: string | undefined;
  /** Whether measured programs take priority over others. */
  readonly isFirst: boolean;
}

/** Results of one run. */
export interface ProxyRun {
  readonly direct: Figures;
  readonly bare: Figures;
  readonly espalier: Figures;
  /** In other Node releases, by name. */
  readonly releases?: Readonly<Record<string, Figures>>;
  readonly shares: SharesByLoad;
}

const help = `Usage: npm run bench -- proxy [options]

What a request costs between client and engine: at a bare proxy of node:http and undici, and at \`espalier serve\`, each in
fresh processes on one core, with load generator and engine on the others. These two are C programs, compiled by cc.
The router looks at caches, by the bytes of prompts; \`token_\` figures are of one that tokenizes turns of a conversation.
\`cold\` figures are of the first requests of a process, the others of one that has had them.

  --node LIST   the router in these releases of Node besides, such as 24,26, which npm brings
  --duration S  seconds of each closed loop (1.5); paced streams take 1.5 times and latencies twice as long
  --priority    all of it before other programs of this machine; needs root
  --runs N      runs with fresh processes, of which the medians count (3)
  --quick       one short run
  --json        one JSON object on standard output
`;

/** The data path: CPU, latency and memory of the router and of a bare proxy. */
export const proxySuite: Suite = {
  name: "proxy",
  summary: "CPU, latency, memory and garbage per request of the data path, beside a bare proxy",
  help,
  async run(args, note) {
    const options = readOptions(args);
    const releases = await installReleases(options.nodeReleases);
    const plan = reserveCore(options.isFirst);
    note(plan ? `pinned: ${describePlan(plan)}` : "not pinned: taskset is missing, or there is only one core");
    const ports = { clock: systemClock, scheduler: systemScheduler, plan };
    const contenders: readonly Contender[] = [
      bareContender(ports),
      ownContender(ports),
      ownContender(ports, thisNode, true),
      ...releases.map((node) => ownContender(ports, node)),
    ];
    const engine = await startBenchEngine();
    const runs: ProxyRun[] = [];
    try {
      for (let index = 0; index < options.runs; index++) {
        const noteRun = (line: string): void => note(`run ${index + 1} of ${options.runs}: ${line}`);
        const more = { isRoundRobinToo: false, isCheckedByWrk: false, note: noteRun };
        runs.push(proxyRun(await measureDataPath({ contenders, engine, sizes: options.sizes, ...more }, index + 1)));
      }
    } finally {
      await engine.stop();
    }
    return { report: proxyReport(runs, paramsOf(options, plan), plan), table: proxyTable };
  },
};

/**
 * Selects the figures of the systems from those of all contenders.
 *
 * @throws Error when one has failed
 */
export function proxyRun({ direct, outcomes, shares }: DataPathRun): ProxyRun {
  const known = new Map<string, Figures>();
  for (const [name, outcome] of outcomes) {
    if ("failure" in outcome) throw new Error(outcome.failure);
    known.set(name, outcome.figures);
  }
  const releases = [...known].filter(([name]) => name.startsWith(`${ownName}@`));
  return {
    direct,
    bare: known.get(bareName) ?? {},
    espalier: { ...known.get(ownName), ...known.get(`${ownName} with tokens`) },
    releases: Object.fromEntries(releases),
    shares,
  };
}

/** @throws UsageError */
function readOptions(args: readonly string[]): ProxyOptions {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: { duration: text, runs: text, node: text, priority: { type: "boolean" }, quick: { type: "boolean" } },
  });
  const quick = values.quick === true;
  const sizes: LoadSizes = {
    durationMs: readPositive("--duration", values.duration, { standard: quick ? 0.6 : 1.5, max: 1_000 }) * 1_000,
    coldRequests: quick ? 10_000 : 55_000,
    growthWarmUpRequests: quick ? 2_000 : 5_000,
    largeWarmUpRequests: quick ? 500 : 4_000,
    turnWarmUpRequests: quick ? 1_000 : 4_000,
  };
  const runs = readWhole("--runs", values.runs, { standard: quick ? 1 : 3, max: 1_000 });
  return { sizes, runs, nodeReleases: values.node, isFirst: values.priority === true };
}

const describePlan = ({ router, others }: CorePlan): string =>
  `routers on core ${router.join(",")}, load generator and engine on ${others.join(",")}`;

function paramsOf({ sizes, runs }: ProxyOptions, plan: CorePlan | undefined): BenchReport["params"] {
  return {
    runs,
    ...sizes,
    concurrency,
    small_body_bytes: smallBodyBytes,
    large_body_bytes: largeBodyBytes,
    large_messages: largeMessages,
    long_body_bytes: longBodyBytes,
    longest_body_bytes: longestBodyBytes,
    stream_tokens: streamTokens,
    stream_gap_ms: streamGapMs,
    streams_per_second: streamsPerSecond,
    burst_streams: burstStreams,
    steady_per_second: steadyPerSecond,
    pinned: plan !== undefined,
    policy: cacheAware,
    new_turn_bytes: newTurnBytes,
    agent_body_bytes: longBodyBytes,
    agent_messages: agentMessages,
    agent_tools: agentTools,
    node: process.versions.node,
  };
}

/**
 * Joins runs into medians.
 *
 * @param plan undefined when nothing was pinned
 */
export function proxyReport(
  runs: readonly ProxyRun[],
  params: BenchReport["params"],
  plan: CorePlan | undefined,
): BenchReport {
  const [direct, bare, espalier] = (["direct", "bare", "espalier"] as const).map((name) =>
    summarizeRuns(runs.map((run) => run[name])),
  );
  const releases = Object.keys(runs[0]?.releases ?? {}).map(
    (name) => [name, summarizeRuns(runs.map((run) => run.releases?.[name] ?? {}))] as const,
  );
  return {
    name: "proxy",
    params,
    metrics: espalier!.medians,
    baselines: {
      bare: bare!.medians,
      direct: direct!.medians,
      ...Object.fromEntries(releases.map(([name, { medians }]) => [name, medians])),
    },
    spread: {
      espalier: espalier!.spread,
      bare: bare!.spread,
      direct: direct!.spread,
      ...Object.fromEntries(releases.map(([name, { spread }]) => [name, spread])),
    },
    shares: runs.map((run) => run.shares),
    warnings: saturationWarnings(runs, plan?.others.length),
  };
}

interface Row {
  readonly figure: string;
  readonly of: (system: string) => string | undefined;
}

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function proxyTable({ metrics, baselines, spread, warnings, params }: BenchReport): string {
  const figures: Readonly<Record<string, Figures | undefined>> = { espalier: metrics, ...baselines };
  const names = [...new Set([...Object.keys(metrics), ...Object.keys(baselines.direct ?? {})])];
  const rows: Row[] = names.map((figure) => ({
    figure,
    of: (system) => {
      const median = figures[system]?.[figure];
      const extremes = spread[system]?.[figure];
      if (median === undefined || !extremes) return undefined;
      return `${short(median)} (${short(extremes.min)} .. ${short(extremes.max)})`;
    },
  }));
  const table = formatTable(rows, [
    { header: "figure", value: (row) => row.figure },
    ...Object.keys(figures).map((system) => ({ header: system, value: (row: Row) => row.of(system) })),
  ]);
  const pinned = params.pinned ? "" : "Not pinned to cores: figures are of the whole machine.\n";
  return `${table}${pinned}${warnings.map((warning) => `Warning: ${warning}.\n`).join("")}`;
}

function short(value: number): string {
  if (Math.abs(value) >= 1_000) return value.toFixed(0);
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
