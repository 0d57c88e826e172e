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
    "Least prefill before the first token, per weight: the uncached tokens of waiting prompts and of the " +
    "request, plus the load time of a LoRA adapter. Near ties go to the fewest requests in flight, then are " +
    "random. In a mesh, the load that peers have not reported yet is estimated, and near ties are random.",
  source: "least work left, less cached tokens",
  readsPrefixes: true,
  options: [
    amount({
      name: "near-tie-tokens",
      default: 64,
      meaning:
        "Difference in prefill tokens, at weight 1, up to which engines count as equal. The default takes less time " +
        "than a decode step.",
    }),
    amount({
      name: "adapter-load-tokens",
      default: 1_024,
      meaning: "Cost of loading a LoRA adapter, in prefill tokens; doubled if another adapter must be unloaded.",
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
