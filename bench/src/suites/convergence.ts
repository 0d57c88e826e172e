import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { startMeshNodeProcess } from "../mesh-node/mesh-node-process.ts";
import type { Figures } from "../support/median-spread.ts";
import { readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { measureConvergence } from "./convergence-run.ts";

const help = `Usage: npm run bench -- convergence [options]

How long until what one of 8 routers is told is known to all of them: changes of blocks until they are in every index, and
load gauges until every router counts them. Eight processes over loopback, 240 targets; one row for each rate of block
changes over all routers: 5,000 a second (the metrics), 50,000, and 240,000 to show where it breaks.

  --seconds N   how long each rate is measured (30)
  --routers N   routers (8)
  --rate N      only this rate of block changes a second
  --quick       two seconds of 5,000 a second, three routers
  --json        one JSON object on standard output
`;

const rates = [5_000, 50_000, 240_000];
const targets = 240;
const blocksPerTarget = 1_024;
/** Figures of a row that also appear in `metrics`, for the first rate. */
const metricNames = ["visible_p50_ms", "visible_p99_ms", "load_p50_ms", "load_p99_ms", "cpu_share_per_router"];

export interface ConvergenceReport extends BenchReport {
  /** One for each rate. */
  readonly rows: readonly Figures[];
}

export interface ConvergenceOptions {
  readonly routers: number;
  readonly seconds: number;
  readonly rates: readonly number[];
}

/** How fast routers come to the same knowledge. */
export const convergenceSuite: Suite = {
  name: "convergence",
  summary: "milliseconds until all of 8 routers know a change, and what that costs",
  help,
  async run(args, note) {
    const options = readOptions(args);
    const rows: Figures[] = [];
    for (const ratePerS of options.rates) {
      const { routers, seconds } = options;
      const sizes = { routers, targets, blocksPerTarget, ratePerS, durationMs: seconds * 1_000 };
      const ports = { startNode: startMeshNodeProcess, clock: systemClock, scheduler: systemScheduler };
      rows.push({ rate_per_s: ratePerS, ...(await measureConvergence(sizes, ports)) });
      note(`${ratePerS} changes/s: visible to all after ${rows.at(-1)?.visible_p50_ms?.toFixed(1)} ms (median)`);
    }
    const report = convergenceReport(rows, options);
    return { report, table: () => convergenceTable(report) };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): ConvergenceOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seconds: { type: "string" },
      routers: { type: "string" },
      rate: { type: "string" },
      quick: { type: "boolean" },
    },
  });
  const isQuick = values.quick === true;
  const only = isQuick ? [rates[0]!] : rates;
  return {
    seconds: readWhole("--seconds", values.seconds, { standard: isQuick ? 2 : 30, max: 3_600 }),
    routers: readWhole("--routers", values.routers, { standard: isQuick ? 3 : 8, max: 64 }),
    rates: values.rate === undefined ? only : [readWhole("--rate", values.rate, { standard: 1, max: 10_000_000 })],
  };
}

/** @param rows by rate; `metrics` has the figures of the first */
export function convergenceReport(
  rows: readonly Figures[],
  { routers, seconds }: ConvergenceOptions,
): ConvergenceReport {
  const [first = {}] = rows;
  return {
    name: "convergence",
    params: { routers, seconds, targets, blocks_per_target: blocksPerTarget, rate_per_s: first.rate_per_s ?? 0 },
    metrics: Object.fromEntries(metricNames.map((name) => [name, first[name] ?? 0])),
    baselines: {},
    spread: {},
    shares: [],
    warnings: [
      `${routers} routers share the cores of one machine with their engines and with what measures them: where the ` +
        "sum of their CPU shares nears the cores, delays are those of waiting for a core",
    ],
    rows,
  };
}

/** One line for each rate. */
export function convergenceTable({ rows, warnings }: ConvergenceReport): string {
  const shown = (name: string, digits: number, factor = 1) => ({
    header: name,
    value: (row: Figures): string => ((row[name] ?? 0) * factor).toFixed(digits),
  });
  const table = formatTable(rows, [
    shown("rate_per_s", 0),
    shown("ops_per_s", 0),
    ...metricNames.slice(0, 4).map((name) => shown(name, 1)),
    shown("cpu_share_per_router", 3),
    shown("cpu_us_per_op", 2),
    shown("bytes_per_s_per_link", 0),
    shown("probes_not_seen_by_all", 0),
  ]);
  return `${table}${warnings.map((warning) => `Note: ${warning}.\n`).join("")}`;
}
