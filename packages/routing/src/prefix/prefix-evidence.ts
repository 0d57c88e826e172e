import type { TargetIndex } from "@espalier/common";
import { type PrefixMatches, type TierName, tierNames } from "@espalier/prefix-index";
import type { FeedStanding } from "./prefix-knowledge.ts";

/** What is known and guessed of a prompt at one target, as it is found in the index: in blocks, before it is judged. */
export interface PrefixEvidence {
  /** What the facts are worth: those of a standing of `void` or `none` are not believed. */
  readonly standing: FeedStanding;
  /** Leading blocks that the engine has announced, each in the fastest tier that has it. */
  readonly factBlocks: Readonly<Record<TierName, number>>;
  /** Leading blocks that were sent there; null where none were. */
  readonly placement: PlacementEvidence | null;
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

export function prefixEvidence(matches: PrefixMatches, target: TargetIndex, standing: FeedStanding): PrefixEvidence {
  const gpu = matches.gpuBlocks[target]!;
  const blocksIn = (name: TierName, inTier: number): [TierName, number] => [
    name,
    // Behind a stretch in a slower tier the chain may go on on the GPU.
    matches.tierBlocks[inTier]![target]! + (name === "gpu" ? gpu : 0),
  ];
  const blocks = matches.placedBlocks[target]!;
  return {
    standing,
    factBlocks: Object.fromEntries(tierNames.map(blocksIn)) as Record<TierName, number>,
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
