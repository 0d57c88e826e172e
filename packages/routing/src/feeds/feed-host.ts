import type { TargetIndex } from "@espalier/common";
import type { LedgerSink } from "@espalier/prefix-index";
import type { FeedStanding } from "../prefix/prefix-knowledge.ts";
import type { FeedOutput } from "./feed-output.ts";
import type { FeedStatus } from "./feed-status.ts";

/** Whose events are read. */
export interface FeedTarget {
  readonly index: TargetIndex;
  readonly key: string;
}

/** Reads the events of one target, from `start` to `stop`. */
export interface EventReading {
  readonly standing: FeedStanding;
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Gives floating blocks their place, where a prompt that was placed here shows it. */
  attach(): void;
  /** Tells everything that is known of the target's blocks to a sink that knows nothing of them. */
  tellAll(sink: LedgerSink): void;
  describe(): FeedStatus;
}

/** A target's feed, as long as its engine and the place of its events stay the same. */
export interface HostedFeed {
  readonly standing: FeedStanding;
  /** See `EventReading`. */
  attach(): void;
  describe(): FeedStatus;
  stop(): Promise<void>;
}

/** Decides whether this router reads a target's events, and where what it reads goes. */
export interface FeedHost {
  /** @param make a feed that is not started; called again whenever the events are to be read from the beginning */
  open(target: FeedTarget, make: (output: FeedOutput) => EventReading): HostedFeed;
}

/** Reads the events of every target, for this router. */
export function createLocalHost(outputOf: (target: FeedTarget) => FeedOutput): FeedHost {
  return {
    open(target, make) {
      const feed = make(outputOf(target));
      void feed.start();
      return feed;
    },
  };
}
