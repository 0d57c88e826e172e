import { parseArgs } from "node:util";
import { formatTable } from "@espalier/simulator";
import type { Figures } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import { measureLinks } from "./links-run.ts";

const help = `Usage: npm run bench -- links [options]

What it costs one router of a mesh to tell all others its load, by the number of routers, each linked with each over
real sockets on loopback: frames and bytes a second that it sends, and the share of a core that it takes to send its own
and to take in those of the others. All routers are in one process, and their gauges change so seldom that one event loop
can follow; the figures are for one of them. "core at most" is what as many frames would take as a router sends under load.

  --routers N,N   sizes of the mesh (8,16,32,64)
  --frames N      frames that all routers together send in a second (4,000)
  --seconds N     time for which each mesh is idle, and for which it is loaded (5)
  --quick         meshes of 2 and 4 routers for a quarter of a second
  --json          one JSON object on standard output
`;

interface LinksOptions {
  readonly sizes: readonly number[];
  readonly seconds: number;
  readonly framesPerS: number;
}

/** Gauge frames between routers, by mesh size. */
export const linksSuite: Suite = {
  name: "links",
  summary: "frames, bytes and CPU of gauges between routers, by the size of the mesh",
  help,
  async run(args, note) {
    const { sizes, seconds, framesPerS } = readOptions(args);
    const metrics: Record<string, number> = {};
    for (const routers of sizes) {
      const figures = await measureLinks({ routers, seconds, framesPerS });
      const most = (framesUnderLoad(routers) * (figures.cpu_us_per_load_frame ?? Number.NaN)) / 1e6;
      for (const [name, value] of Object.entries({ ...figures, load_cpu_share_at_most: most })) {
        metrics[`${name}_${routers}`] = value;
      }
      note(`${routers} routers measured`);
    }
    const report = linksReport(metrics, { sizes, seconds, framesPerS });
    return { report, table: (shown) => linksTable(shown, sizes) };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): LinksOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      routers: { type: "string" },
      frames: { type: "string" },
      seconds: { type: "string" },
      quick: { type: "boolean" },
    },
  });
  const isQuick = values.quick === true;
  const sizes = (values.routers ?? (isQuick ? "2,4" : "8,16,32,64")).split(",");
  return {
    sizes: sizes.map((size) => whole("--routers", size, 2, 65)),
    framesPerS: whole("--frames", values.frames ?? "4000", 1, 1_000_000),
    seconds: values.seconds === undefined && isQuick ? 0.25 : whole("--seconds", values.seconds ?? "5", 1, 600),
  };
}

/**
 * Frames per second to all peers from a router whose gauges change constantly: one per 10 ms and peer, 1,200 at most.
 */
function framesUnderLoad(routers: number): number {
  return Math.min((routers - 1) * 100, 1_200);
}

function whole(name: string, given: string, least: number, most: number): number {
  const value = Number(given);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`${name} must be a whole number from ${least} to ${most}`);
}

function linksReport(metrics: Figures, { sizes, seconds, framesPerS }: LinksOptions): BenchReport {
  return {
    name: "links",
    params: { routers: sizes.join(","), seconds, frames_per_s: framesPerS },
    metrics,
    baselines: {},
    spread: {},
    shares: [],
    warnings: [
      "all routers share one event loop, and what a frame costs is taken at a low rate, at which no two go together",
    ],
  };
}

function linksTable({ metrics, warnings }: BenchReport, sizes: readonly number[]): string {
  const of = (name: string, digits: number) => (routers: number) =>
    (metrics[`${name}_${routers}`] ?? 0).toFixed(digits);
  const percent = (name: string) => (routers: number) => `${((metrics[`${name}_${routers}`] ?? 0) * 100).toFixed(2)} %`;
  const rows = formatTable(sizes, [
    { header: "routers", value: (routers) => `${routers}` },
    { header: "idle B/s", value: of("idle_bytes_per_s", 0) },
    { header: "idle core", value: percent("idle_cpu_share") },
    { header: "load frames/s", value: of("loaded_load_frames_per_s", 0) },
    { header: "load B/s", value: of("loaded_load_bytes_per_s", 0) },
    { header: "us a frame", value: of("cpu_us_per_load_frame", 1) },
    { header: "most frames/s", value: (routers) => framesUnderLoad(routers).toFixed(0) },
    { header: "core at most", value: percent("load_cpu_share_at_most") },
  ]);
  return `${rows}${warnings.map((warning) => `Note: ${warning}.\n`).join("")}`;
}
