import { type Cancel, type Clock, createSeededRandom, type Scheduler } from "@espalier/core";
import type { FeedReader, Replica } from "@espalier/shared-tree";
import { SyntheticFeed } from "../support/synthetic-feed.ts";
import { textBits } from "../support/text-bits.ts";

export interface NodeFeedsOptions {
  readonly replica: Pick<Replica, "openFeed">;
  readonly targets: readonly string[];
  readonly blocksPerTarget: number;
  readonly ratePerS: number;
  readonly seed: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** A node's synthetic engines and the delivery of their messages. */
export interface NodeFeeds {
  /** Resolves with the number of blocks in all targets when they are full. */
  fill(): Promise<number>;
  /** From now on, changes blocks at the rate. */
  start(): void;
  stop(): void;
  /** Blocks stored and removed since the last reset, excluding those of `fill`. */
  readonly ops: number;
  readonly messages: number;
  /** Operations that were overdue for too long and given up. */
  readonly skippedOps: number;
  reset(): void;
}

interface OpenFeed {
  readonly feed: SyntheticFeed;
  readonly reader: FeedReader;
}

const periodMs = 5;
/** Maximum time to create messages in one turn of the event loop, so that it does not stall the measured code. */
const turnMs = 3;
/**
 * Operations overdue for longer are skipped: the report shows a rate that was not reached, and the node stays
 * responsive.
 */
const maxDueMs = 250;

export function createNodeFeeds(options: NodeFeedsOptions): NodeFeeds {
  const { clock, scheduler, ratePerS } = options;
  const feeds = options.targets.map((target) => openSyntheticFeed(options, target));
  let next = 0;
  let ops = 0;
  let messages = 0;
  let skippedOps = 0;
  let cancel: Cancel | undefined;
  const stepAt = ({ feed, reader }: OpenFeed): number => {
    const done = feed.step(reader.sink);
    reader.batch(feed.mark(Math.floor(clock.wallMs() * 1_000)), true);
    return done;
  };
  return {
    fill: () =>
      new Promise((resolve) => {
        let filled = 0;
        const turn = (): void => {
          const startMs = clock.nowMs();
          while (filled < feeds.length && clock.nowMs() - startMs < turnMs) {
            if (feeds[filled]!.feed.isFull) filled += 1;
            else stepAt(feeds[filled]!);
          }
          if (filled < feeds.length) scheduler.after(1, turn);
          else resolve(feeds.reduce((sum, { feed }) => sum + feed.blocks, 0));
        };
        turn();
      }),
    start() {
      if (cancel || feeds.length === 0 || ratePerS === 0) return;
      let dueOps = 0;
      let lastMs = clock.nowMs();
      cancel = scheduler.every(periodMs, () => {
        const startMs = clock.nowMs();
        dueOps += ((startMs - lastMs) / 1_000) * ratePerS;
        lastMs = startMs;
        while (dueOps > 0 && clock.nowMs() - startMs < turnMs) {
          const done = stepAt(feeds[next++ % feeds.length]!);
          dueOps -= done;
          ops += done;
          messages += 1;
        }
        const excess = dueOps - (ratePerS * maxDueMs) / 1_000;
        if (excess <= 0) return;
        skippedOps += excess;
        dueOps -= excess;
      });
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
    get ops() {
      return ops;
    },
    get messages() {
      return messages;
    },
    get skippedOps() {
      return skippedOps;
    },
    reset() {
      ops = 0;
      messages = 0;
      skippedOps = 0;
    },
  };
}

function openSyntheticFeed({ replica, blocksPerTarget, seed }: NodeFeedsOptions, target: string): OpenFeed {
  const feedSeed = (textBits(target) ^ seed) >>> 0;
  const feed = new SyntheticFeed({
    random: createSeededRandom(feedSeed),
    seed: feedSeed,
    liveBlocks: blocksPerTarget,
  });
  const reader = replica.openFeed(target, (sink) => feed.tellAll(sink));
  reader.setRole("owner");
  reader.setQuality("complete", "live", "synthetic", null);
  return { feed, reader };
}
