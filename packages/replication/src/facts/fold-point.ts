import type { BatchMark } from "./life.ts";

/** How far a target is folded. */
export interface FoldPoint {
  /** Every message up to this one is applied, or was skipped. */
  readonly position: number;
  /** The latest that was applied. */
  readonly last: BatchMark | undefined;
  /** Sequence of the first message that may not be in the state as it was; `never` for a complete state. */
  readonly incompleteFrom: number;
}

/** `incompleteFrom` of a state that every message up to its position is in. */
export const never = Number.MAX_SAFE_INTEGER;

/** Where a life begins: nothing is held before its first message. */
export function startOf(life: BatchMark): FoldPoint {
  return { position: life.sequence - 1, last: undefined, incompleteFrom: never };
}
