import type { CandidateSet } from "./candidates.ts";
import type { Decision, Scorer } from "./decision.ts";

/** What a matched token of each tier is worth, as a share of one in the GPU's cache. */
export interface TierCredits {
  readonly cpu: number;
  readonly disk: number;
  readonly external: number;
}

/** Where nothing else is said: CPU memory and disk as NVIDIA Dynamo's router has them. */
export const defaultTierCredits: TierCredits = { cpu: 0.75, disk: 0.25, external: 0.5 };

/**
 * Writes, by candidate index, how many tokens of the prompt each eligible candidate need not compute, those of slower
 * tiers at their credit.
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

/** Tokens of the prompt that a candidate has in any tier. */
export function matchedInAll(candidates: CandidateSet, index: number): number {
  return (
    candidates.matchedTokens[index]! +
    candidates.matchedCpuTokens[index]! +
    candidates.matchedDiskTokens[index]! +
    candidates.matchedExternalTokens[index]!
  );
}

/**
 * The share of the prompt that the candidate need not compute, 0 to 1; 0 for a prompt of unknown length.
 *
 * @param maxTokens of the prompt only so many at its beginning are looked at
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
