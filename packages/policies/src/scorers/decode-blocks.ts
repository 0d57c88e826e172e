import type { Scorer } from "../decision.ts";
import { countingWeight } from "../weights.ts";

/**
 * Blocks of prompts that requests in flight would use if the request in hand went there, each block once, per unit of weight.
 * Where no account of blocks is kept, all full ones of the prompt are new.
 *
 * @param blockTokens tokens in a block
 */
export function createDecodeBlocks(blockTokens: number): Scorer {
  return {
    name: "decode_blocks",
    score({ request, candidates, eligible, eligibleCount }, out) {
      const { weight, activeTokens, newActiveTokens } = candidates;
      const promptBlocks = Math.floor(request.promptTokens / blockTokens);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const added = newActiveTokens[index]!;
        const newBlocks = Number.isNaN(added) ? promptBlocks : added / blockTokens;
        out[index] = (activeTokens[index]! / blockTokens + newBlocks) / countingWeight(weight[index]!);
      }
    },
  };
}
