import type { BatchMark } from "./life.ts";

/** What one message of an engine did to the blocks of its target. */
export interface FactRecord extends BatchMark {
  readonly kind: "record";
  /** Number of the feed, a target's life, in the journal that holds the record. */
  readonly feed: number;
  /** Whether the writer had read everything that the engine published in this life up to here. */
  readonly isComplete: boolean;
  /** For `applyFactOps`. A view of the item. */
  readonly ops: Uint8Array;
}

/** The writer will not read these messages any more: who waits for them goes on without. */
export interface GapEntry {
  readonly kind: "gap";
  readonly feed: number;
  readonly from: number;
  /** The last one missing. */
  readonly to: number;
}

/** States what a target holds once every message up to its sequence is applied. */
export interface CutEntry extends BatchMark {
  readonly kind: "cut";
  readonly feed: number;
  readonly isComplete: boolean;
  /** Blocks of all tiers. */
  readonly blocks: number;
  /** `PrefixIndex.digest` of the target. */
  readonly digest: readonly [number, number];
}

export type FactEntry = FactRecord | GapEntry | CutEntry;
