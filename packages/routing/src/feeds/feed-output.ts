import type { LedgerSink } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/replication";
import type { FeedStanding } from "../prefix/prefix-knowledge.ts";

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
