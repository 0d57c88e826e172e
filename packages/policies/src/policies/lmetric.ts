import { composePolicy } from "../compose-policy.ts";
import { createScratch, type Scorer } from "../decision.ts";
import { foreignRequestTokens, type PolicyDefinition, tierCreditOptions, tierCredits } from "../definition.ts";
import { requestLoad } from "../load.ts";
import type { TierCredits } from "../match.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { createQueuedPrefill, createUncachedTokens } from "../scorers/prefill-work.ts";
import { weightedOnly } from "../weights.ts";

/** Rounding makes products of equal work differ by less than this. */
const roundingError = 1e-6;

export const lmetric: PolicyDefinition = {
  summary:
    "Lowest product of prefill tokens (waiting prompts and the uncached part of the request) and requests in " +
    "flight, both per weight and including the request. Ties are random by weight.",
  source: "LMetric, Zhang et al. 2026 (arXiv 2603.15202)",
  readsPrefixes: true,
  options: [foreignRequestTokens, ...tierCreditOptions],
  create: (option) =>
    composePolicy({
      name: "lmetric",
      filters: [weightedOnly],
      terms: [
        {
          scorer: createPrefillTimesBatch({
            credits: tierCredits(option),
            foreignRequestTokens: option(foreignRequestTokens.name),
          }),
          weight: 1,
        },
      ],
      picker: createNearTiePicker({ reason: "least_cost", tolerance: roundingError }),
    }),
};

interface PrefillTimesBatchOptions {
  readonly credits: TierCredits;
  /** Assumed size of a queued request of another client, in tokens. */
  readonly foreignRequestTokens: number;
}

/**
 * Prefill tokens including this request, times requests including this one, each per unit of weight. Neither factor is
 * ever 0, so neither can hide the other: the request itself counts, and so does the last token of a fully cached
 * prompt.
 */
function createPrefillTimesBatch({ credits, foreignRequestTokens }: PrefillTimesBatchOptions): Scorer {
  const queued = createQueuedPrefill(foreignRequestTokens);
  const uncached = createUncachedTokens(credits);
  const scratch = createScratch();
  return {
    name: "prefill_times_batch",
    parts: [...(queued.parts ?? []), uncached, requestLoad],
    score(decision, out) {
      const { eligible, eligibleCount } = decision;
      const other = scratch.of(decision);
      queued.score(decision, out);
      uncached.score(decision, other);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! + other[index]!;
      }
      requestLoad.score(decision, other);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! * other[index]!;
      }
    },
  };
}
