import type { TargetIndex } from "@espalier/common";
import { type PrefixIndex, tier } from "@espalier/prefix-index";
import type { FeedOutput } from "./feed-output.ts";

export interface LocalOutputOptions {
  readonly index: PrefixIndex;
  /** The target runs anew: nothing that was known of it holds. */
  readonly forget: (target: TargetIndex) => void;
  /** The target has emptied its cache: what was guessed of it does not hold. */
  readonly forgetPlacements: (target: TargetIndex) => void;
}

/** Writes what a target's events come to into the index of this router. */
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
    newLife: () => forget(target),
    emptied: () => forgetPlacements(target),
    condition: () => {},
  };
}
