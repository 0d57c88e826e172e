import type { Scorer } from "../decision.ts";
import { type TierCredits, writeCredits } from "../match.ts";
import { createScratch } from "../scratch.ts";
import { countingWeight } from "../weights.ts";
import { createQueuedPrefill } from "./queued-prefill.ts";

export interface PrefillBlocksOptions {
  /** Tokens in a block. */
  readonly blockTokens: number;
  readonly credits: TierCredits;
  /** What a queued request of another client is taken to weigh, in tokens. */
  readonly foreignRequestTokens: number;
}

/**
 * Blocks of prefill with the request in hand, per unit of weight: what is queued and the whole prompt, less the blocks
 * that the candidate is credited with for its caches, at least 0.
 */
export function createPrefillBlocks({ blockTokens, credits, foreignRequestTokens }: PrefillBlocksOptions): Scorer {
  const queued = createQueuedPrefill(foreignRequestTokens);
  const credit = createCreditBlocks(blockTokens, credits);
  const scratch = createScratch();
  return {
    name: "prefill_blocks",
    parts: [...(queued.parts ?? []), credit],
    score(decision, out) {
      const { request, candidates, eligible, eligibleCount } = decision;
      const credited = scratch.of(decision);
      queued.score(decision, out);
      credit.score(decision, credited);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const prompt = request.promptTokens / countingWeight(candidates.weight[index]!);
        out[index] = Math.max(0, (out[index]! + prompt) / blockTokens - credited[index]!);
      }
    },
  };
}

/** Blocks of the prompt that the candidate need not compute, those of slower tiers at their credit, per unit of weight. */
function createCreditBlocks(blockTokens: number, credits: TierCredits): Scorer {
  return {
    name: "credit_blocks",
    score(decision, out) {
      writeCredits(decision, credits, out);
      const { candidates, eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! / blockTokens / countingWeight(candidates.weight[index]!);
      }
    },
  };
}
