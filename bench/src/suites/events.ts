import { parseArgs } from "node:util";
import { createSeededRandom, systemClock } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import { type EventsRun, runEventsOnce } from "./events-run.ts";
import { blockSize, type EventTrafficShape, makeEventTraffic, maxBlocksPerStore } from "./events-traffic.ts";

const help = `Usage: npm run bench -- events [options]

How fast KV events of engines are taken in: messages of 8 feeds in three dialects, each with one store of 1 to 8 blocks
of 16 tokens and as many removals. From bytes through decoder and ledger to index, the decoder alone, off a socket
without ledger and index; beside it, the same messages through a general msgpack library, which only decodes.

  --runs N   runs, of which the medians count (5)
  --quick    one short run
  --json     one JSON object on standard output
`;

const feeds = 8;
const full = { shape: { feeds, liveBlocks: 4_096, messagesPerFeed: 2_000 }, passes: 9 };
const quick = { shape: { feeds, liveBlocks: 256, messagesPerFeed: 100 }, passes: 3 };
const maxRuns = 100;

/** Ingest of KV events: from bytes to the index, the decoder alone, and from a socket. */
export const eventsSuite: Suite = {
  name: "events",
  summary: "block operations per second from the bytes of KV events",
  help,
  async run(args, note) {
    const options = readOptions(args);
    const runs: EventsRun[] = [];
    for (let run = 0; run < options.runs; run++) {
      const traffic = makeEventTraffic(options.shape, createSeededRandom(run + 1));
      runs.push(await runEventsOnce({ traffic, passes: options.passes, clock: systemClock }));
      note(`run ${run + 1} of ${options.runs}: ${describe(runs.at(-1)!)}`);
    }
    return { report: eventsReport(runs, options.shape), table: eventsTable };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): { shape: EventTrafficShape; passes: number; runs: number } {
  const { values } = parseArgs({ args: [...args], options: { runs: { type: "string" }, quick: { type: "boolean" } } });
  const size = values.quick === true ? quick : full;
  const runs = values.runs === undefined ? (values.quick === true ? 1 : 5) : Number(values.runs);
  if (!Number.isInteger(runs) || runs < 1 || runs > maxRuns) {
    throw new UsageError(`--runs must be a whole number from 1 to ${maxRuns}`);
  }
  return { ...size, runs };
}

const describe = ({ espalier, library }: EventsRun): string =>
  `${millions(espalier.block_ops_per_s)} million block operations/s from bytes to index, ` +
  `${millions(espalier.decode_block_ops_per_s)} decoded only, ` +
  `${millions(espalier.socket_block_ops_per_s)} off a socket, ${millions(library.decode_block_ops_per_s)} by the library`;

const millions = (value = 0): string => (value / 1e6).toFixed(2);

/** Joins runs into medians. */
export function eventsReport(runs: readonly EventsRun[], shape: EventTrafficShape): BenchReport {
  const espalier = summarizeRuns(runs.map((run) => run.espalier));
  const library = summarizeRuns(runs.map((run) => run.library));
  return {
    name: "events",
    params: {
      runs: runs.length,
      feeds: shape.feeds,
      live_blocks: shape.liveBlocks,
      messages_per_feed: shape.messagesPerFeed,
      block_size: blockSize,
      max_blocks_per_store: maxBlocksPerStore,
    },
    metrics: espalier.medians,
    baselines: { msgpack_library: library.medians },
    spread: { espalier: espalier.spread, msgpack_library: library.spread },
    shares: [],
    warnings: ["the publisher of the socket figure runs on the same thread as the reader"],
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function eventsTable({ metrics, baselines, spread, warnings }: BenchReport): string {
  const cell = (system: string, figure: string): string | undefined => {
    const median = (system === "espalier" ? metrics : baselines[system])?.[figure];
    const extremes = spread[system]?.[figure];
    if (median === undefined || !extremes) return undefined;
    return `${millions(median)} (${millions(extremes.min)} .. ${millions(extremes.max)})`;
  };
  const table = formatTable(Object.keys(metrics), [
    { header: "millions of", value: (figure) => figure },
    { header: "espalier", value: (figure) => cell("espalier", figure) },
    { header: "msgpack library", value: (figure) => cell("msgpack_library", figure) },
  ]);
  return `${table}${warnings.map((warning) => `Note: ${warning}.\n`).join("")}`;
}
