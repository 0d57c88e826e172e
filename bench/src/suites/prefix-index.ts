import { parseArgs } from "node:util";
import { systemClock } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import {
  branchEvery,
  type PrefixIndexRun,
  type PrefixIndexSizes,
  runBlocks,
  runPrefixIndexOnce,
  targets,
} from "./prefix-index-run.ts";

const help = `Usage: npm run bench -- index [options]

The index from chain hashes to targets: storing and removing runs of ${runBlocks} blocks, looking up single blocks, memory, and
queries of long chains that many targets have to different depths; beside a Map of Sets and a walk of every block.

  --blocks N    blocks stored and removed (2,000,000)
  --runs N      runs, of which the medians count (5)
  --quick       one short run
  --json        one JSON object on standard output
`;

interface IndexOptions {
  readonly runs: number;
  readonly sizes: PrefixIndexSizes;
}

/** The index alone, without hashing and feeds. */
export const prefixIndexSuite: Suite = {
  name: "index",
  summary: "the index from chain hashes to targets, beside a Map of Sets",
  help,
  run(args, note) {
    const { runs: wanted, sizes } = readOptions(args);
    const runs: PrefixIndexRun[] = [];
    for (let index = 0; index < wanted; index++) {
      runs.push(runPrefixIndexOnce(sizes, { clock: systemClock, seed: index + 1 }));
      note(
        `run ${index + 1} of ${wanted}: ${((runs.at(-1)?.espalier.insert_ops_per_s ?? 0) / 1e6).toFixed(1)} M stores/s`,
      );
    }
    return Promise.resolve({ report: prefixIndexReport(runs, sizes), table: prefixIndexTable });
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): IndexOptions {
  const { values } = parseArgs({
    args: [...args],
    options: { blocks: { type: "string" }, runs: { type: "string" }, quick: { type: "boolean" } },
  });
  const quick = values.quick === true;
  const blocks = whole("--blocks", values.blocks, { standard: quick ? 100_000 : 2_000_000, most: 50_000_000 });
  const runs = whole("--runs", values.runs, { standard: quick ? 1 : 5, most: 100 });
  const sizes = {
    blocks,
    turnoverBlocks: quick ? 5_000 : 50_000,
    turnovers: 100,
    otherBlocks: quick ? 50_000 : 500_000,
    naiveBlocks: Math.min(blocks, quick ? 20_000 : 300_000),
    queries: quick ? 200 : 2_000,
  };
  return { runs, sizes };
}

function whole(
  name: string,
  given: string | undefined,
  { standard, most }: { standard: number; most: number },
): number {
  const value = given === undefined ? standard : Number(given);
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new UsageError(`${name} must be a whole number from 1 to ${most}`);
}

/** Joins runs into medians. */
export function prefixIndexReport(runs: readonly PrefixIndexRun[], sizes: PrefixIndexSizes): BenchReport {
  const [espalier, naive] = (["espalier", "naive"] as const).map((name) => summarizeRuns(runs.map((run) => run[name])));
  return {
    name: "index",
    params: {
      runs: runs.length,
      blocks: sizes.blocks,
      naive_blocks: sizes.naiveBlocks,
      run_blocks: runBlocks,
      targets,
      turnover_blocks: sizes.turnoverBlocks,
      turnovers: sizes.turnovers,
      other_blocks: sizes.otherBlocks,
      branch_every: branchEvery,
      queries: sizes.queries,
    },
    metrics: espalier!.medians,
    baselines: { naive: naive!.medians },
    spread: { espalier: espalier!.spread, naive: naive!.spread },
    shares: [],
    warnings: [],
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs; rates in millions. */
export function prefixIndexTable({ metrics, baselines, spread }: BenchReport): string {
  const figures: Readonly<Record<string, Figures | undefined>> = { espalier: metrics, ...baselines };
  const cell = (system: string, figure: string): string | undefined => {
    const median = figures[system]?.[figure];
    const extremes = spread[system]?.[figure];
    if (median === undefined || !extremes) return undefined;
    const show = (value: number): string => (isRate(figure) ? value / 1e6 : value).toFixed(2);
    return `${show(median)} (${show(extremes.min)} .. ${show(extremes.max)})`;
  };
  return formatTable(Object.keys(metrics), [
    { header: "figure", value: (figure) => (isRate(figure) ? `${figure}, millions` : figure) },
    { header: "espalier", value: (figure) => cell("espalier", figure) },
    { header: "naive", value: (figure) => cell("naive", figure) },
  ]);
}

const isRate = (figure: string): boolean => figure.endsWith("_per_s");
