import type { TargetIndex } from "@espalier/common";
import { type LedgerSink, type PrefixIndex, type TierName, tier } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/replication";
import type { FeedStanding } from "./prefix/prefix-knowledge.ts";

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

/** What one message of an engine came to. */
export interface BatchOutcome {
  /** Every message of the engine's life up to this one was read. */
  readonly isComplete: boolean;
  /** Blocks that it removed and nobody here had heard of. */
  readonly unknownRemovals: number;
}

/** What a feed is worth, and why, for those who do not see it themselves. */
export interface FeedCondition {
  readonly standing: FeedStanding;
  readonly state: string;
  readonly reason: string;
  /** Why what is read cannot be used. */
  readonly unusable: string | undefined;
}

/** Takes what a target's events come to: into the index of this router, or to all routers. */
export interface FeedOutput {
  /** Takes the changes of blocks; those before a `batch` belong to it. */
  readonly sink: LedgerSink;
  batch(mark: BatchMark, outcome: BatchOutcome): void;
  /** These messages were missed for good. */
  gap(from: number, to: number): void;
  /** The engine is another process now. */
  newLife(): void;
  /** The engine has emptied its cache. */
  emptied(): void;
  condition(condition: FeedCondition): void;
}

/** What is known of a target's feed, by whoever reads it. */
export interface FeedStatus {
  readonly target: string;
  readonly state: string;
  readonly reason: string;
  /** What this router has to do with it, and which router reads it; null where each reads for itself. */
  readonly role: "owner" | "backup" | "none" | null;
  readonly owner: string | null;
  /** Blocks of the index that the target has announced, by tier. */
  readonly blocks: Readonly<Record<TierName, number>>;
  /** The engine's blocks whose place in a prompt is not known. */
  readonly floatingBlocks: number;
  /** Why what is read cannot be used: block sizes that do not fit. */
  readonly unusable: string | null;
}

interface LocalOutputOptions {
  readonly index: PrefixIndex;
  /** The target runs anew: nothing that was known of it holds. */
  readonly forget: (target: TargetIndex) => void;
  /** The target has emptied its cache: what was guessed of it does not hold. */
  readonly forgetPlacements: (target: TargetIndex) => void;
}

/** Writes what a target's events come to into the index of this router. */
export function createLocalOutput(
  { index, forget, forgetPlacements }: LocalOutputOptions,
  target: TargetIndex,
): FeedOutput {
  return {
    sink: {
      stored: (inTier, words, from, to) => index.storeFacts(target, inTier, words, from, to),
      removed: (inTier, words, from, to) => index.removeFacts(target, inTier, words, from, to),
      orphaned: (inTier, words, at, depth) => index.removeOrphan(target, inTier, words, { index: at, depth }),
      holeGone: (inTier, words, at) => {
        if (inTier === tier.gpu) index.forgetOrphan(target, words, at);
      },
      cleared: () => index.clearFacts(target),
    },
    batch: () => {},
    gap: () => {},
    newLife: () => forget(target),
    emptied: () => forgetPlacements(target),
    condition: () => {},
  };
}
