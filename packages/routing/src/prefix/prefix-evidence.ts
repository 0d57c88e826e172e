import type { TargetIndex } from "@espalier/common";
import { type PrefixMatches, type TierName, tierNames } from "@espalier/prefix-index";
import type { KnownPool } from "./pool-reach.ts";
import type { FeedStanding } from "./prefix-knowledge.ts";

/** What is known and guessed of a prompt at one target, as it is found in the index: in blocks, before it is judged. */
export interface PrefixEvidence {
  /** What the facts are worth: those of a standing of `void` or `none` are not believed. */
  readonly standing: FeedStanding;
  /** Leading blocks that the engine has announced, each in the fastest tier that has it. */
  readonly factBlocks: Readonly<Record<TierName, number>>;
  /** What pools hold that the target can fetch from. */
  readonly pools: readonly PoolEvidence[];
  /** Leading blocks that were sent there; null where none were. */
  readonly placement: PlacementEvidence | null;
}

export interface PoolEvidence {
  readonly pool: string;
  readonly standing: FeedStanding;
  /** Leading blocks of the prompt, in whatever memory of the pool. */
  readonly blocks: number;
}

/** Where a target stands: its feed, and the pools in its reach with theirs. */
export interface EvidenceSources {
  readonly pools: readonly KnownPool[];
  readonly standingOf: (target: TargetIndex) => FeedStanding;
}

export interface PlacementEvidence {
  readonly blocks: number;
  /** Leading blocks that the engine has confirmed by the cached tokens of an answer. */
  readonly confirmedBlocks: number;
  /** Since the deepest of them was last used. */
  readonly ageMs: number;
  /** Who used it then, by the number in the index: 0 for this router. */
  readonly by: number;
}

export function prefixEvidence(
  matches: PrefixMatches,
  target: TargetIndex,
  { pools, standingOf }: EvidenceSources,
): PrefixEvidence {
  const gpu = matches.gpuBlocks[target]!;
  const blocksIn = (name: TierName, inTier: number): [TierName, number] => [
    name,
    // Behind a stretch in a slower tier the chain may go on on the GPU.
    matches.tierBlocks[inTier]![target]! + (name === "gpu" ? gpu : 0),
  ];
  const blocks = matches.placedBlocks[target]!;
  return {
    standing: standingOf(target),
    factBlocks: Object.fromEntries(tierNames.map(blocksIn)) as Record<TierName, number>,
    pools: pools.map(({ name, index }) => ({
      pool: name,
      standing: standingOf(index),
      blocks: matches.factBlocks[index]!,
    })),
    placement:
      blocks === 0
        ? null
        : {
            blocks,
            confirmedBlocks: matches.confirmedBlocks[target]!,
            ageMs: matches.placementAgeMs[target]!,
            by: matches.placedBy[target]!,
          },
  };
}
