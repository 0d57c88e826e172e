import type { FeedReaderLimits } from "./feed-limits.ts";

export interface CutNeed {
  /** Blocks stored and removed since the last cut. */
  readonly ops: number;
  /** Blocks that the target holds. */
  readonly blocks: number;
  readonly sinceCutMs: number;
  /** Whether any message came after the last cut. */
  readonly hasMoved: boolean;
}

/** A cut that did not get its turn is made without one when as many times what makes it due has passed. */
const overdueFactor = 3;

/**
 * When a feed needs another cut: so that what is kept in journals is at most one to three times what is held, and so that
 * replicas that differ find out. `due` ones take turns.
 */
export function cutUrgency(need: CutNeed, limits: FeedReaderLimits): "none" | "due" | "overdue" {
  if (!need.hasMoved) return "none";
  const share = need.ops / Math.max(limits.minCutOps, need.blocks);
  const age = need.sinceCutMs / limits.maxCutAgeMs;
  const most = Math.max(share, age);
  if (most < 1) return "none";
  return most < overdueFactor ? "due" : "overdue";
}
