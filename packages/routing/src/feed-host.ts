import type { TargetIndex } from "@espalier/common";
import { type LedgerSink, type PrefixIndex, type TierName, tier } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/replication";
import type { FeedConfidence } from "./prefix/prefix-knowledge.ts";

/** Whose events are read. */
export interface FeedTarget {
  readonly index: TargetIndex;
  readonly key: string;
}

/** Reads the events of one target, from `start` to `stop`. */
export interface EventReading {
  readonly standing: FeedConfidence;
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Attaches floating blocks whose place a prompt that was placed here shows. */
  attach(): void;
  /** Writes everything that is known of the target's blocks to an empty sink. */
  tellAll(sink: LedgerSink): void;
  describe(): FeedStatus;
}

/** A target's feed, as long as its engine and event endpoint stay the same. */
export interface HostedFeed {
  readonly standing: FeedConfidence;
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

/** Outcome of one message of an engine. */
export interface BatchOutcome {
  /** Whether every message of the engine process up to this one was read. */
  readonly isComplete: boolean;
  /** Removed blocks that were not known here. */
  readonly unknownRemovals: number;
}

/** Confidence of a feed and the reason, published to routers that do not read it. */
export interface FeedCondition {
  readonly standing: FeedConfidence;
  readonly state: string;
  readonly reason: string;
  /** Why what is read cannot be used. */
  readonly unusable: string | undefined;
}

/** Where the changes from a target's events go: into this router's index, or to all routers. */
export interface FeedOutput {
  /** Takes the changes of blocks; those before a `batch` belong to it. */
  readonly sink: LedgerSink;
  batch(mark: BatchMark, outcome: BatchOutcome): void;
  /** These messages were missed for good. */
  gap(from: number, to: number): void;
  /** The engine process was restarted. */
  newEpoch(): void;
  /** The engine has emptied its cache. */
  emptied(): void;
  condition(condition: FeedCondition): void;
}

/** Status of a target's feed, from the router that reads it. */
export interface FeedStatus {
  readonly target: string;
  readonly state: string;
  readonly reason: string;
  /** This router's role, and the router that reads the feed; null where each router reads for itself. */
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
  /** The target was restarted: forget its facts and placements. */
  readonly forget: (target: TargetIndex) => void;
  /** The target has emptied its cache: forget its placements. */
  readonly forgetPlacements: (target: TargetIndex) => void;
}

/** Writes the changes from a target's events into this router's index. */
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
    newEpoch: () => forget(target),
    emptied: () => forgetPlacements(target),
    condition: () => {},
  };
}
