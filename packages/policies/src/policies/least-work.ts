import { composePolicy, type PolicyParts } from "../compose-policy.ts";
import { amount, foreignRequestTokens, type PolicyDefinition, tierCreditOptions, tierCredits } from "../definition.ts";
import { requestLoad } from "../load.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { PeerLoad } from "../pickers/peer-load.ts";
import { createAdapterLoad } from "../scorers/adapters.ts";
import { createForeignPrefill, createUncachedTokens, pendingPrefill } from "../scorers/prefill-work.ts";
import { weightedOnly } from "../weights.ts";

/** Rounding makes sums of equal work differ by less than this many tokens. */
const roundingErrorTokens = 1e-6;

/** What a request in flight costs the next one, in prefill tokens: a few steps of a batch that is larger by one. */
const requestTokens = 16;

export const leastWork: PolicyDefinition = {
  summary:
    "The engine with the least prefill before the first token of the answer, for its weight. That is the prompt " +
    "tokens that wait there, and those of the prompt in hand that its cache lacks. A LoRA adapter that has to be " +
    "loaded counts as more. Near equals by the fewest requests in flight, then at random. With other routers beside " +
    "this one, engines count as filled up evenly by what those send unseen, and equals are drawn.",
  source: "least prompt-work left, with the work that caches save taken off",
  readsPrefixes: true,
  options: [
    amount({
      name: "near-tie-tokens",
      default: 64,
      meaning:
        "Tokens of prefill, at weight 1, by which engines may differ and count as equal. The default takes less time " +
        "than a step of decoding.",
    }),
    amount({
      name: "adapter-load-tokens",
      default: 1_024,
      meaning:
        "What loading a LoRA adapter costs an engine, in tokens of prefill; an adapter that has to be given up for it " +
        "counts as much again.",
    }),
    foreignRequestTokens,
    ...tierCreditOptions,
  ],
  create: (option) => composePolicy({ name: "least_work", filters: [weightedOnly], ...leastWorkParts(option) }),
};

/**
 * The terms and the picker of `least_work`, which `sticky` uses too.
 *
 * @param option returns the value of an option of `leastWork`
 */
export function leastWorkParts(option: (name: string) => number): Pick<PolicyParts, "terms" | "picker"> {
  const loadTokens = option("adapter-load-tokens");
  return {
    terms: [
      { scorer: pendingPrefill, weight: 1 },
      { scorer: createForeignPrefill(option(foreignRequestTokens.name)), weight: 1 },
      { scorer: createUncachedTokens(tierCredits(option)), weight: 1 },
      ...(loadTokens > 0 ? [{ scorer: createAdapterLoad(loadTokens), weight: 1 }] : []),
    ],
    picker: createNearTiePicker({
      reason: "least_work",
      tolerance: Math.max(roundingErrorTokens, option("near-tie-tokens")),
      tieBreaker: requestLoad,
      peers: new PeerLoad({
        commonTerms: 2,
        amountOf: ({ request }) => request.estimatedPeerTokens ?? 0,
        tieCost: requestTokens,
      }),
    }),
  };
}
