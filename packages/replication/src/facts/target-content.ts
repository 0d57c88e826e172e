import type { PrefixIndex } from "@espalier/prefix-index";

/** What a target holds, in short: two replicas that hold the same have the same. */
export interface TargetContent {
  /** Of all tiers. */
  readonly blocks: number;
  readonly digest: readonly [number, number];
}

/** O(1), whatever the target holds. */
export function contentOf(index: PrefixIndex, slot: number): TargetContent {
  const digest = index.digest(slot);
  return { blocks: blocksOf(index, slot), digest: [digest[0]!, digest[1]!] };
}

/** Blocks of a target in all tiers. */
function blocksOf(index: PrefixIndex, slot: number): number {
  let blocks = 0;
  for (const inTier of [0, 1, 2, 3] as const) blocks += index.factBlockCount(slot, inTier);
  return blocks;
}
