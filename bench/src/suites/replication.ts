import { systemCpuMs } from "@espalier/core";
import { optional, quick, whole } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns } from "../support/suite.ts";
import { measureTurnover, type ReplicationSizes, runReplicationOnce } from "./replication-run.ts";

const owners = 8;
const feeds = 240;
const tickMs = 25;

/** Journals, fold and index without HTTP; the frames of a link in virtual time. */
export const replicationSuite = defineSuite({
  name: "replication",
  summary: "bytes, memory and CPU of sharing facts between routers",
  about: `
What sharing facts costs: engines made up like vLLM's (a message per step with decoded blocks, now and then a prompt, and
as many evictions), read by 8 routers, whose journals one of them folds into its index. Bytes on a link per block stored
or removed, memory per live block, CPU of one router at 100,000 and 500,000 changes a second, memory after everything
was replaced 100 times, and what 1,000 restarts of routers leave behind.`,
  params: {
    runs: optional(
      whole({ help: "runs, of which the medians count; 3, or 1 with --quick or --ops", standard: 3, most: 100 }),
    ),
    blocks: whole({
      help: "blocks of each of the 240 engines while rates are measured",
      ...{ standard: 8_192, quick: 512, least: 128, most: 32_768 },
    }),
    ops: optional(whole({ help: "instead of all that: memory over so many changes, as 1e8", standard: 1, most: 1e10 })),
    quick: quick(),
  },
  async measure({ blocks, ops, quick, runs = quick || ops !== undefined ? 1 : 3 }, note) {
    const sizes = sizesFor(blocks, quick, 1);
    const done = await repeatRuns({ runs, note }, async (seed, noteRun) => {
      const seeded = sizesFor(blocks, quick, seed);
      const ports = { cpuMs: systemCpuMs, note };
      const figures =
        ops === undefined ? await runReplicationOnce(seeded, ports) : measureTurnover(seeded.turnover, ops, ports);
      noteRun("done");
      return { espalier: figures };
    });
    const { flow, rateSeconds, turnover, turnovers, wire, restarts } = sizes;
    return {
      params: {
        ...{ runs, owners, feeds: flow.feeds, blocks_per_feed: flow.blocksPerFeed, tick_ms: flow.tickMs },
        ...{ rate_seconds: rateSeconds, turnover_feeds: turnover.feeds },
        ...{ turnover_blocks_per_feed: turnover.blocksPerFeed, turnovers, wire_feeds_per_router: wire.feeds },
        ...{ wire_changes_per_s_per_router: wire.ratePerS, wire_seconds: wire.seconds, restarts: restarts.epochs },
      },
      ...joinRuns(done),
      warnings: [
        `an engine of this class holds 32,768 blocks; here ${flow.blocksPerFeed} while rates are measured, ` +
          `${turnover.blocksPerFeed} of ${turnover.feeds} engines while memory is`,
        "the CPU shares have everything from the bytes of an update on in them, and the own feeds from what a ledger " +
          "forwards; sockets and frame headers are not in them",
        ...(quick ? ["a quick run is too short for any of the figures to be believed"] : []),
      ],
    };
  },
});

function sizesFor(blocksPerFeed: number, isQuick: boolean, seed: number): ReplicationSizes {
  return {
    flow: { owners, feeds: isQuick ? 24 : feeds, blocksPerFeed, tickMs, seed },
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
