import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/common";
import { formatTable } from "@espalier/workload";
import type { CorePlan } from "../support/cpu-pinning.ts";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import { readPositive, readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { measuredPolicy, reserveCore, startProxyFleet } from "./proxy-fleet.ts";
import {
  agentBodyBytes,
  agentMessages,
  agentTools,
  concurrency,
  largeBodyBytes,
  largeMessages,
  newTurnBytes,
  type ProxySizes,
  smallBodyBytes,
  steadyPerSecond,
  streamGapMs,
  streamsPerSecond,
  streamTokens,
} from "./proxy-loads.ts";
import { type ProxyRun, runProxyOnce } from "./proxy-run.ts";

interface ProxyOptions {
  readonly sizes: ProxySizes;
  readonly runs: number;
}

const help = `Usage: npm run bench -- proxy [options]

What a request costs between client and engine, at three systems in turn: the engine asked directly, a bare proxy of
node:http and undici, and \`espalier serve\`. The latter two run on one core, load generator and engine on the others.
The router looks at caches, by the bytes of prompts; \`token_\` figures are of one that tokenizes turns of a conversation.

  --duration S  seconds of each closed loop (2.2); paced streams take 1.5 times and latencies twice as long
  --runs N      runs with fresh processes, of which the medians count (3)
  --quick       one short run
  --json        one JSON object on standard output
`;

/** The data path: CPU, latency and memory of the router beside a bare proxy. */
export const proxySuite: Suite = {
  name: "proxy",
  summary: "CPU, latency and memory per request of the data path, beside a bare proxy",
  help,
  async run(args, note) {
    const options = readOptions(args);
    const plan = reserveCore();
    note(plan ? `pinned: ${describePlan(plan)}` : "not pinned: taskset is missing, or there is only one core");
    const runs: ProxyRun[] = [];
    for (let index = 0; index < options.runs; index++) {
      const fleet = await startProxyFleet(plan);
      try {
        const ports = { clock: systemClock, scheduler: systemScheduler };
        const noteRun = (line: string): void => note(`run ${index + 1} of ${options.runs}: ${line}`);
        runs.push(await runProxyOnce(fleet, { sizes: options.sizes, seed: index + 1, ...ports, note: noteRun }));
      } finally {
        await fleet.stop();
      }
    }
    return { report: proxyReport(runs, paramsOf(options, plan), plan), table: proxyTable };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): ProxyOptions {
  const { values } = parseArgs({
    args: [...args],
    options: { duration: { type: "string" }, runs: { type: "string" }, quick: { type: "boolean" } },
  });
  const quick = values.quick === true;
  const durationMs = readPositive("--duration", values.duration, { standard: quick ? 0.7 : 2.2, max: 1_000 }) * 1_000;
  const runs = readWhole("--runs", values.runs, { standard: quick ? 1 : 3, max: 1_000 });
  const sizes = {
    durationMs,
    // A paced stream takes half a second; until then connections are still being added.
    warmUpMs: 600,
    growthRequests: quick ? 10_000 : 50_000,
    growthWarmUpRequests: quick ? 2_000 : 5_000,
    turnWarmUpRequests: quick ? 1_000 : 4_000,
  };
  return { sizes, runs };
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
    stream_tokens: streamTokens,
    stream_gap_ms: streamGapMs,
    streams_per_second: streamsPerSecond,
    steady_per_second: steadyPerSecond,
    pinned: plan !== undefined,
    policy: measuredPolicy,
    new_turn_bytes: newTurnBytes,
    agent_body_bytes: agentBodyBytes,
    agent_messages: agentMessages,
    agent_tools: agentTools,
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
  return {
    name: "proxy",
    params,
    metrics: espalier!.medians,
    baselines: { bare: bare!.medians, direct: direct!.medians },
    spread: { espalier: espalier!.spread, bare: bare!.spread, direct: direct!.spread },
    shares: runs.map((run) => run.shares),
    warnings: saturationWarnings(runs, plan?.others.length ?? 1),
  };
}

/** Above this share of its cores the load generator or the engine may be what bounds the rate. */
const saturatedShare = 0.95;

function saturationWarnings(runs: readonly ProxyRun[], otherCores: number): readonly string[] {
  const warnings = new Set<string>();
  for (const { shares } of runs) {
    for (const [load, systems] of Object.entries(shares)) {
      for (const [system, { load: generator, engine }] of Object.entries(systems)) {
        const busiest = Math.max(generator, engine, (generator + engine) / otherCores);
        // The engine asked directly has nothing else to be bound by.
        if (system === "direct" || busiest < saturatedShare) continue;
        warnings.add(`${load} at ${system}: load generator or engine was saturated, so its rate is a lower bound`);
      }
    }
  }
  return [...warnings];
}

interface Row {
  readonly figure: string;
  readonly of: (system: "espalier" | "bare" | "direct") => string | undefined;
}

/** The report for a terminal: medians, with the extremes of the runs behind. */
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
    { header: "espalier", value: (row) => row.of("espalier") },
    { header: "bare", value: (row) => row.of("bare") },
    { header: "direct", value: (row) => row.of("direct") },
  ]);
  const pinned = params.pinned ? "" : "Not pinned to cores: figures are of the whole machine.\n";
  return `${table}${pinned}${warnings.map((warning) => `Warning: ${warning}.\n`).join("")}`;
}

function short(value: number): string {
  if (Math.abs(value) >= 1_000) return value.toFixed(0);
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
