import type { Target } from "@espalier/workers";
import type { TargetFeedDescription } from "./engine-feeds.ts";
import type { FeedOutput } from "./feed-output.ts";
import type { FeedStanding } from "./prefix-knowledge.ts";
import type { TargetFeed } from "./target-feed.ts";

/** A target's feed, as long as its engine and the place of its events stay the same. */
export interface HostedFeed {
  readonly standing: FeedStanding;
  /** See `TargetFeed.attach`. */
  attach(): void;
  describe(): TargetFeedDescription;
  stop(): Promise<void>;
}

/** Decides whether this router reads a target's events, and where what it reads goes. */
export interface FeedHost {
  /** @param make a feed that is not started; called again whenever the events are to be read from the beginning */
  open(target: Target, make: (output: FeedOutput) => TargetFeed): HostedFeed;
}

/** Reads the events of every target, for this router. */
export function createLocalHost(outputOf: (target: Target) => FeedOutput): FeedHost {
  return {
    open(target, make) {
      const feed = make(outputOf(target));
      void feed.start();
      return feed;
    },
  };
}
