import { layOutTable } from "@espalier/core";
import { startMeshNodeProcess } from "../mesh-node/mesh-node-process.ts";
import { summarizeRuns } from "../support/median-spread.ts";
import { quick, runs, whole } from "../support/params.ts";
import { type BenchReport, defineSuite, withExtremes } from "../support/suite.ts";
import { type JoinRun, type JoinSizes, joinFigures, measureJoins, systemJoinPorts } from "./join-run.ts";

const changesPerS = 5_000;

/** A router joins two others over real sockets. */
export const joinSuite = defineSuite({
  name: "join",
  summary: "how long a router takes to join others, and what that does to their event loops",
  about: `
How a router joins two others that hold about 5 million pairs of block and target: how long until it has everything, and
the longest time that an event loop stood still meanwhile, at the joiner and at its peers. Three processes on loopback.
The metrics are of joins while the peers are idle; those while they change 5,000 blocks a second have "loaded_" before
their names. "busy" stalls count CPU time only: what a busy machine adds to the others is not in them.`,
  params: {
    runs: runs(5, 100, "joins of each kind, of which the medians count"),
    blocks: whole({
      help: "blocks of each of the peers' 320 targets",
      ...{ standard: 16_384, quick: 1_024, least: 128, most: 32_768 },
    }),
    quick: quick("one join of each kind, with few blocks"),
  },
  async measure({ runs, blocks, quick }, note) {
    const sizes = { targetsPerPeer: quick ? 8 : 160, blocksPerTarget: blocks, changesPerS, joins: runs };
    return joinReport(await measureJoins(sizes, systemJoinPorts(startMeshNodeProcess, note)), sizes);
  },
  table: joinTable,
});

/** Joins measurements into medians. */
export function joinReport({ idle, busy }: JoinRun, sizes: JoinSizes) {
  const [whileIdle, whileBusy] = [idle, busy].map((joins) => summarizeRuns(joins.map(joinFigures)));
  return {
    params: {
      ...{ runs: idle.length, peers: 2, targets: 2 * sizes.targetsPerPeer },
      ...{ blocks_per_target: sizes.blocksPerTarget, changes_per_s: sizes.changesPerS },
    },
    metrics: { ...whileIdle!.medians, ...loaded(whileBusy!.medians) },
    spread: { espalier: { ...whileIdle!.spread, ...loaded(whileBusy!.spread) } },
    warnings: ["a stall has in it what the machine gave to other processes, the other two of the mesh among them"],
  };
}

function loaded<Value>(figures: Readonly<Record<string, Value>>): Record<string, Value> {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [`loaded_${name}`, value]));
}

/** Joins while peers are idle beside those while they are at work. */
export function joinTable({ metrics, spread }: Pick<BenchReport, "metrics" | "spread">): string {
  const cell = (figure: string) => withExtremes(figure, metrics[figure], spread.espalier?.[figure]);
  return layOutTable(
    Object.keys(metrics).filter((figure) => !figure.startsWith("loaded_")),
    [
      { header: "figure", value: (figure) => figure },
      { header: "peers idle", value: cell },
      { header: "peers at work", value: (figure) => cell(`loaded_${figure}`) },
    ],
  );
}
