import { parseArgs } from "node:util";
import { formatTable } from "@espalier/simulator";
import { processCpuMs } from "../mesh-node/process-cpu.ts";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import { measureTurnover, type ReplicationSizes, runReplicationOnce } from "./replication-run.ts";

const help = `Usage: npm run bench -- replication [options]

What sharing facts costs: engines made up like vLLM's (a message per step with decoded blocks, now and then a prompt, and
as many evictions), read by 8 routers, whose journals one of them folds into its index. Bytes on a link per block stored
or removed, memory per live block, CPU of one router at 100,000 and 500,000 changes a second, memory after everything
was replaced 100 times, and what 1,000 restarts of routers leave behind.

  --runs N     runs, of which the medians count (3)
  --blocks N   blocks of each of the 240 engines while rates are measured (8,192)
  --ops N      instead of all that: memory over so many changes, as 1e8
  --quick      one short run
  --json       one JSON object on standard output
`;

interface ReplicationOptions {
  readonly runs: number;
  readonly sizes: ReplicationSizes;
  readonly ops: number | undefined;
  readonly isQuick: boolean;
}

const owners = 8;
const feeds = 240;
const tickMs = 25;
const maxRuns = 100;
const maxBlocks = 32_768;
const minBlocks = 128;
const maxOps = 1e10;

/** Journals, fold and index without HTTP; the frames of a link in virtual time. */
export const replicationSuite: Suite = {
  name: "replication",
  summary: "bytes, memory and CPU of sharing facts between routers",
  help,
  async run(args, note) {
    const { runs: wanted, sizes, ops, isQuick } = readOptions(args);
    const runs: Figures[] = [];
    for (let run = 0; run < wanted; run++) {
      const seeded = withSeed(sizes, run + 1);
      const ports = { cpuMs: processCpuMs, note };
      runs.push(
        ops === undefined ? await runReplicationOnce(seeded, ports) : measureTurnover(seeded.turnover, ops, ports),
      );
      note(`run ${run + 1} of ${wanted} done`);
    }
    return { report: replicationReport(runs, sizes, isQuick), table: replicationTable };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): ReplicationOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      runs: { type: "string" },
      blocks: { type: "string" },
      ops: { type: "string" },
      quick: { type: "boolean" },
    },
  });
  const isQuick = values.quick === true;
  const ops = values.ops === undefined ? undefined : whole("--ops", values.ops, 1, maxOps);
  const standardRuns = isQuick || ops !== undefined ? "1" : "3";
  const runs = whole("--runs", values.runs ?? standardRuns, 1, maxRuns);
  const blocks = whole("--blocks", values.blocks ?? (isQuick ? "512" : "8192"), minBlocks, maxBlocks);
  return { runs, ops, isQuick, sizes: sizesFor(blocks, isQuick) };
}

function sizesFor(blocksPerFeed: number, isQuick: boolean): ReplicationSizes {
  const seed = 1;
  const rateShape = { owners, feeds: isQuick ? 24 : feeds, blocksPerFeed, tickMs, seed };
  return {
    flow: rateShape,
    rateSeconds: isQuick ? 0.25 : 3,
    turnover: { owners, feeds: isQuick ? 8 : 16, blocksPerFeed: isQuick ? 512 : 4_096, tickMs, seed },
    turnovers: isQuick ? 5 : 100,
    wire: {
      feeds: (isQuick ? 24 : feeds) / owners,
      blocksPerFeed: isQuick ? 512 : 4_096,
      ratePerS: 100_000 / owners,
      seconds: isQuick ? 1 : 20,
      seed,
    },
    restarts: { epochs: isQuick ? 100 : 1_000, routers: owners, feeds: 2, blocksPerFeed: 256, seed },
  };
}

function withSeed(sizes: ReplicationSizes, seed: number): ReplicationSizes {
  const { flow, turnover, wire, restarts } = sizes;
  return {
    ...sizes,
    flow: { ...flow, seed },
    turnover: { ...turnover, seed },
    wire: { ...wire, seed },
    restarts: { ...restarts, seed },
  };
}

function whole(name: string, given: string, least: number, most: number): number {
  const value = Number(given);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`${name} must be a whole number from ${least} to ${most}`);
}

/** Joins runs into medians. */
export function replicationReport(runs: readonly Figures[], sizes: ReplicationSizes, isQuick: boolean): BenchReport {
  const { medians, spread } = summarizeRuns(runs);
  const { flow, rateSeconds, turnover, turnovers, wire, restarts } = sizes;
  return {
    name: "replication",
    params: {
      runs: runs.length,
      owners,
      feeds: flow.feeds,
      blocks_per_feed: flow.blocksPerFeed,
      tick_ms: flow.tickMs,
      rate_seconds: rateSeconds,
      turnover_feeds: turnover.feeds,
      turnover_blocks_per_feed: turnover.blocksPerFeed,
      turnovers,
      wire_feeds_per_router: wire.feeds,
      wire_changes_per_s_per_router: wire.ratePerS,
      wire_seconds: wire.seconds,
      restarts: restarts.epochs,
    },
    metrics: medians,
    baselines: {},
    spread: { espalier: spread },
    shares: [],
    warnings: [
      `an engine of this class holds 32,768 blocks; here ${flow.blocksPerFeed} while rates are measured, ` +
        `${turnover.blocksPerFeed} of ${turnover.feeds} engines while memory is`,
      "the CPU shares have everything from the bytes of an update on in them, and the own feeds from what a ledger " +
        "tells on; sockets and frame headers are not in them",
      ...(isQuick ? ["a quick run is too short for any of the figures to be believed"] : []),
    ],
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function replicationTable({ metrics, spread, warnings }: BenchReport): string {
  const rows = formatTable(Object.keys(metrics), [
    { header: "figure", value: (figure) => figure },
    {
      header: "median (least .. most)",
      value: (figure) => {
        const extremes = spread.espalier?.[figure];
        return `${shown(metrics[figure])} (${shown(extremes?.min)} .. ${shown(extremes?.max)})`;
      },
    },
  ]);
  return `${rows}${warnings.map((warning) => `Note: ${warning}.\n`).join("")}`;
}

function shown(value: number | undefined): string {
  if (value === undefined) return "-";
  return Math.abs(value) >= 1_000 ? Math.round(value).toLocaleString("en-US") : value.toFixed(3);
}
