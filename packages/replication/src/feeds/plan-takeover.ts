import type { FoldState } from "../facts/fact-fold.ts";
import type { BatchMark } from "../facts/life.ts";

export interface TakeoverFacts {
  /** Its life is the one that is read. */
  readonly state: FoldState;
  readonly earliest: BatchMark;
  readonly newest: BatchMark;
  /** Whether every message of the life up to `newest` was read. */
  readonly isComplete: boolean;
  /** Everything that was read from this message on is kept. */
  readonly keptFrom: number | undefined;
  /** As far as this message the fold is known to have had everything; the one before the life's first at least. */
  readonly completeTo: number;
}

/**
 * How a reader goes on where the fold is. `records`: it writes what it keeps, from this message on, be it nothing; before
 * that it says that `gapFrom` and what follows, up to its first one, is not known. `state`: it states all that its ledger
 * holds. `wait`: it cannot tell more than is known yet.
 */
export type TakeoverPlan =
  | { readonly how: "records"; readonly from: number; readonly gapFrom?: number }
  | { readonly how: "state" }
  | { readonly how: "wait" };

export function planTakeover(facts: TakeoverFacts): TakeoverPlan {
  const { state, earliest, newest, isComplete, keptFrom, completeTo } = facts;
  const last = lastSequenceOf(state);
  const lifeStart = state.life?.sequence ?? 0;
  const byState: TakeoverPlan = newest.sequence >= last ? { how: "state" } : { how: "wait" };
  if (state.progress === "loading") return isComplete ? byState : { how: "wait" };
  // No record tells of what was read before the message that names the life, and the fold takes that for nothing.
  const isUnfounded = earliest.sequence < lifeStart && completeTo < lifeStart;
  if (isUnfounded && (isComplete || state.last === undefined)) return byState;
  // What another reader has missed is told again by one who has not.
  const from = (isComplete && !state.isComplete ? Math.min(completeTo, last) : last) + 1;
  if (newest.sequence < from || (keptFrom !== undefined && keptFrom <= from)) return { how: "records", from };
  // A ledger that began later knows less than what was inherited.
  if (!isComplete && keptFrom === earliest.sequence) return { how: "records", from: keptFrom, gapFrom: from };
  return byState;
}

/** The latest message that is applied; the one before the life's first when there is none. */
export function lastSequenceOf({ last, life }: FoldState): number {
  return last?.sequence ?? (life ? life.sequence - 1 : -1);
}
