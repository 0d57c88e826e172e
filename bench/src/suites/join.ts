import { parseArgs } from "node:util";
import { formatTable } from "@espalier/simulator";
import { startMeshNodeProcess } from "../mesh-node/mesh-node-process.ts";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import { type JoinRun, type JoinSizes, joinFigures, measureJoins, systemJoinPorts } from "./join-run.ts";

const help = `Usage: npm run bench -- join [options]

How a router joins two others that hold about 5 million pairs of block and target: how long until it has everything, and
the longest time that an event loop stood still meanwhile, at the joiner and at its peers. Three processes on loopback.
The metrics are of joins while the peers are idle; those while they change 5,000 blocks a second have "loaded_" before
their names. "busy" stalls count CPU time only: what a busy machine adds to the others is not in them.

  --runs N      joins of each kind, of which the medians count (5)
  --blocks N    blocks of each of the peers' 320 targets (16,384)
  --quick       one join of each kind, with few blocks
  --json        one JSON object on standard output
`;

const maxRuns = 100;
const minBlocks = 128;
const maxBlocks = 32_768;
const changesPerS = 5_000;

/** A router joins two others over real sockets. */
export const joinSuite: Suite = {
  name: "join",
  summary: "how long a router takes to join others, and what that does to their event loops",
  help,
  async run(args, note) {
    const sizes = readOptions(args);
    const run = await measureJoins(sizes, systemJoinPorts(startMeshNodeProcess, note));
    return { report: joinReport(run, sizes), table: joinTable };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): JoinSizes {
  const { values } = parseArgs({
    args: [...args],
    options: { runs: { type: "string" }, blocks: { type: "string" }, quick: { type: "boolean" } },
  });
  const isQuick = values.quick === true;
  return {
    targetsPerPeer: isQuick ? 8 : 160,
    blocksPerTarget: whole("--blocks", values.blocks ?? (isQuick ? "1024" : "16384"), minBlocks, maxBlocks),
    changesPerS,
    joins: whole("--runs", values.runs ?? (isQuick ? "1" : "5"), 1, maxRuns),
  };
}

function whole(name: string, given: string, least: number, most: number): number {
  const value = Number(given);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`${name} must be a whole number from ${least} to ${most}`);
}

/** Joins measurements into medians. */
export function joinReport({ idle, busy }: JoinRun, sizes: JoinSizes): BenchReport {
  const [whileIdle, whileBusy] = [idle, busy].map((joins) => summarizeRuns(joins.map(joinFigures)));
  return {
    name: "join",
    params: {
      runs: idle.length,
      peers: 2,
      targets: 2 * sizes.targetsPerPeer,
      blocks_per_target: sizes.blocksPerTarget,
      changes_per_s: sizes.changesPerS,
    },
    metrics: { ...whileIdle!.medians, ...loaded(whileBusy!.medians) },
    baselines: {},
    spread: { espalier: { ...whileIdle!.spread, ...loaded(whileBusy!.spread) } },
    shares: [],
    warnings: ["a stall has in it what the machine gave to other processes, the other two of the mesh among them"],
  };
}

function loaded<Value>(figures: Readonly<Record<string, Value>>): Record<string, Value> {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [`loaded_${name}`, value]));
}

/** The report for a terminal: medians, followed by the extremes of the joins. */
export function joinTable({ metrics, spread, warnings }: BenchReport): string {
  const figures: Figures = metrics;
  const cell = (figure: string): string => {
    const extremes = spread.espalier?.[figure];
    return `${shown(figures[figure])} (${shown(extremes?.min)} .. ${shown(extremes?.max)})`;
  };
  const idle = Object.keys(figures).filter((figure) => !figure.startsWith("loaded_"));
  const rows = formatTable(idle, [
    { header: "figure", value: (figure) => figure },
    { header: "peers idle", value: cell },
    { header: "peers at work", value: (figure) => cell(`loaded_${figure}`) },
  ]);
  return `${rows}${warnings.map((warning) => `Note: ${warning}.\n`).join("")}`;
}

function shown(value: number | undefined): string {
  if (value === undefined) return "-";
  return value >= 1_000 ? Math.round(value).toLocaleString("en-US") : value.toFixed(1);
}
