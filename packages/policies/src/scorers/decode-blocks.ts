import type { Scorer } from "../decision.ts";
import { countingWeight } from "../weights.ts";

/**
 * Blocks of context that dispatched requests which have begun to answer hold, per unit of weight; one that is begun is
 * held in full.
 *
 * @param blockTokens tokens in a block
 */
export function createDecodeBlocks(blockTokens: number): Scorer {
  return {
    name: "decode_blocks",
    score({ candidates, eligible, eligibleCount }, out) {
      const { weight, decodeTokens } = candidates;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = Math.ceil(decodeTokens[index]! / blockTokens) / countingWeight(weight[index]!);
      }
    },
  };
}
