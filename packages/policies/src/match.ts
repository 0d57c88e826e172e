import type { CandidateSet } from "./candidates.ts";
import type { Decision, Scorer } from "./decision.ts";

/** Value of a matched token in each tier, relative to one on the GPU. */
export interface TierCredits {
  readonly cpu: number;
  readonly disk: number;
  readonly external: number;
}

/** Defaults. CPU memory and disk are those of NVIDIA Dynamo's router. */
export const defaultTierCredits: TierCredits = { cpu: 0.75, disk: 0.25, external: 0.5 };

/**
 * Writes, by candidate index, how many prompt tokens each eligible candidate need not compute. Slower tiers count at
 * their credit.
 */
export function writeCredits(
  { request: { promptTokens }, candidates, eligible, eligibleCount }: Decision,
  { cpu, disk, external }: TierCredits,
  out: Float64Array,
): void {
  const { matchedTokens, matchedCpuTokens, matchedDiskTokens, matchedExternalTokens } = candidates;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const slower =
      cpu * matchedCpuTokens[index]! + disk * matchedDiskTokens[index]! + external * matchedExternalTokens[index]!;
    out[index] = Math.min(promptTokens, matchedTokens[index]! + slower);
  }
}

/** Prompt tokens that a candidate has in any tier. */
export function matchedInAll(candidates: CandidateSet, index: number): number {
  return (
    candidates.matchedTokens[index]! +
    candidates.matchedCpuTokens[index]! +
    candidates.matchedDiskTokens[index]! +
    candidates.matchedExternalTokens[index]!
  );
}

/** Prompt tokens that a candidate need not compute: those that it has in any tier, and those that it should pull. */
export function availableTokens(candidates: CandidateSet, index: number): number {
  return matchedInAll(candidates, index) + candidates.pulledTokens[index]!;
}

/**
 * Share of the prompt that the candidate need not compute, 0 to 1; 0 for a prompt of unknown length.
 *
 * @param maxTokens only this many tokens at the beginning of the prompt count
 */
export function createMatchShare(
  name: string,
  credits: TierCredits,
  maxTokens: number = Number.POSITIVE_INFINITY,
): Scorer {
  return {
    name,
    score(decision, out) {
      writeCredits(decision, credits, out);
      const { eligible, eligibleCount, request } = decision;
      const tokens = Math.min(request.promptTokens, maxTokens);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = tokens > 0 ? Math.min(tokens, out[index]!) / tokens : 0;
      }
    },
  };
}
