import { createSeededRandom, systemClock } from "@espalier/core";
import { quick, runs } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns, shown } from "../support/suite.ts";
import { runEventsOnce } from "./events-run.ts";
import { blockSize, makeEventTraffic, maxBlocksPerStore } from "./events-traffic.ts";

const feeds = 8;
const fullSize = { shape: { feeds, liveBlocks: 4_096, messagesPerFeed: 2_000 }, passes: 9 };
const quickSize = { shape: { feeds, liveBlocks: 256, messagesPerFeed: 100 }, passes: 3 };

/** Ingest of KV events: from bytes to the index, the decoder alone, and from a socket. */
export const eventsSuite = defineSuite({
  name: "events",
  summary: "block operations per second from the bytes of KV events",
  about: `
How fast KV events of engines are taken in: messages of 8 feeds in three dialects, each with one store of 1 to 8 blocks
of 16 tokens and as many removals. From bytes through decoder and ledger to index, the decoder alone, off a socket
without ledger and index; beside it, the same messages through a general msgpack library, which only decodes.`,
  params: { runs: runs(5), quick: quick() },
  async measure({ runs, quick }, note) {
    const { shape, passes } = quick ? quickSize : fullSize;
    const done = await repeatRuns({ runs, note }, async (seed, noteRun) => {
      const traffic = makeEventTraffic(shape, createSeededRandom(seed));
      const { espalier, library } = await runEventsOnce({ traffic, passes, clock: systemClock });
      noteRun(`${shown("", espalier.block_ops_per_s ?? 0)} block operations/s from bytes to index`);
      return { espalier, msgpack_library: library };
    });
    return {
      params: {
        ...{ runs, feeds, live_blocks: shape.liveBlocks, messages_per_feed: shape.messagesPerFeed },
        ...{ block_size: blockSize, max_blocks_per_store: maxBlocksPerStore },
      },
      ...joinRuns(done),
      warnings: ["the publisher of the socket figure runs on the same thread as the reader"],
    };
  },
});
