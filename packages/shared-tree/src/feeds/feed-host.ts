import type { TargetIndex } from "@espalier/core";
import { type LedgerSink, type PrefixIndex, type TierName, tier } from "@espalier/prefix-index";
import type { BatchMark } from "../facts/engine-epoch.ts";
import type { FeedQuality } from "./feed-claim.ts";

/** A target whose events are read. */
export interface FeedTarget {
  readonly index: TargetIndex;
  readonly key: string;
  /** Where its engine is; undefined if that is not known. */
  readonly region?: string | undefined;
}

/** Reads the events of one target, from `start` to `stop`. */
export interface EventReading {
  readonly quality: FeedQuality;
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Attaches floating blocks whose position follows from a prompt that was placed here. */
  attach(): void;
  /** Writes all known blocks of the target to an empty sink. */
  tellAll(sink: LedgerSink): void;
  describe(): FeedStatus;
}

/** The feed of a target. It lives until the target's engine or event endpoint changes. */
export interface HostedFeed {
  readonly quality: FeedQuality;
  /** See `EventReading`. */
  attach(): void;
  describe(): FeedStatus;
  stop(): Promise<void>;
}

/** Decides whether this router reads a target's events, and where the changes go. */
export interface FeedHost {
  /** @param make creates a feed that is not started; called again to read the events from the beginning */
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
  /** Whether all messages of the engine process up to this one were read. */
  readonly isComplete: boolean;
  /** Removed blocks that this router did not know. */
  readonly unknownRemovals: number;
}

/** Quality of a feed and the reason. Published to routers that do not read the feed. */
export interface FeedCondition {
  readonly quality: FeedQuality;
  readonly state: string;
  readonly reason: string;
  /** Why the events cannot be used. */
  readonly unusable: string | undefined;
}

/** Where the changes from a target's events go: to this router's index, or to all routers. */
export interface FeedOutput {
  /** Takes the changes of blocks; those before a `batch` belong to it. */
  readonly sink: LedgerSink;
  batch(mark: BatchMark, outcome: BatchOutcome): void;
  /** These messages are lost. */
  gap(from: number, to: number): void;
  /** The engine process was restarted. */
  newEpoch(): void;
  /** The engine emptied its cache. */
  emptied(): void;
  condition(condition: FeedCondition): void;
}

/** Status of a target's feed, from the router that reads it. */
export interface FeedStatus {
  readonly target: string;
  readonly state: string;
  readonly reason: string;
  /** This router's role, and the router that reads the feed; null if each router reads for itself. */
  readonly role: "owner" | "backup" | "none" | null;
  readonly owner: string | null;
  /** Indexed blocks that the target has announced, by tier. */
  readonly blocks: Readonly<Record<TierName, number>>;
  /** Blocks of the engine whose position in a prompt is unknown. */
  readonly floatingBlocks: number;
  /** Why the events cannot be used: the event socket cannot be opened, or the block sizes do not fit. */
  readonly unusable: string | null;
}

interface LocalOutputOptions {
  readonly index: PrefixIndex;
  /** The target was restarted: forget its facts and placements. */
  readonly forget: (target: TargetIndex) => void;
  /** The target emptied its cache: forget its placements. */
  readonly forgetPlacements: (target: TargetIndex) => void;
}

/** Writes the changes from a target's events to this router's index. */
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
