import { blockChange } from "@espalier/engine-model";
import { type Tier, tier } from "@espalier/prefix-index";

/** What becomes of the blocks of a run. */
export interface BlockMove {
  readonly tier: Tier;
  /** Whether they come there, or go. */
  readonly isStored: boolean;
}

const moves = new Map<number, BlockMove>([
  [blockChange.stored, { tier: tier.gpu, isStored: true }],
  [blockChange.removed, { tier: tier.gpu, isStored: false }],
  [blockChange.offloaded, { tier: tier.cpu, isStored: true }],
  [blockChange.discarded, { tier: tier.cpu, isStored: false }],
]);

/** What a run of one of the kinds of `blockChange` says; undefined for the one that clears everything. */
export function blockMoveOf(kind: number): BlockMove | undefined {
  return moves.get(kind);
}
