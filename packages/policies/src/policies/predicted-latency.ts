import { composePolicy, type PolicyParts } from "../compose-policy.ts";
import type { Decision, Filter } from "../decision.ts";
import { believedCreditOptions, foreignRequestTokens, type PolicyDefinition, tierCredits } from "../definition.ts";
import { requestLoad } from "../load.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { PeerLoad } from "../pickers/peer-load.ts";
import { createSecondCopyPicker } from "../pickers/second-copy.ts";
import { createAdapterLoadMs } from "../scorers/adapters.ts";
import {
  backlog,
  createFetchTime,
  createForeignBacklog,
  createOwnWork,
  network,
  ownership,
  ownMsOf,
  tokenMsOf,
} from "../scorers/prefill-time.ts";
import { countingWeight, weightedOnly } from "../weights.ts";

/**
 * Costs that differ by less count as equal: it is less than a decode step. Equals matter to routers that decide at
 * once.
 */
const nearTieMs = 8;
/**
 * What a request in flight costs the next one and the others of its batch: steps of a batch that is larger by one.
 * Scores of terms that do not depend on the prompt have weight 1.
 */
const requestMs = 1;
/**
 * Computing a prompt stalls every answer of its batch. A stall of many seconds counts for more: from this many
 * milliseconds the weight grows in proportion, up to a bound.
 */
const stallMs = 2_000;

export const predictedLatency: PolicyDefinition = {
  summary:
    "Lowest predicted latency, including the delay of other requests, in milliseconds. The backlog is " +
    "dead-reckoned. The uncached prefill of the request is weighted by engine load, stalled answers and " +
    "`slo.tpot`. Block transfers from slower memory and network round trips above the nearest engine's, from " +
    "2 ms, add to the cost. Round trips weigh up to five times while nearby engines have free memory and no " +
    "prefill backlog, because later turns repeat them. Popular prefixes are copied to another engine once the " +
    "delay without the copy equals its cost. A guard rail excludes engines with 16 requests in flight above " +
    "three times the mean. Times are learned from answers; credits apply until transfer times are " +
    "learned. A cold prompt leaves the engines owned by its router only for a gain of 20 ms plus the lag of peers. Near ties and peer load are handled as in least_work.",
  source:
    "dead-reckoned backlog and s / (1 - rho), by simulation; learned rates; ski rental for copies (Karlin et " +
    "al., 1988); bounded loads (Mirrokni et al., 2016)",
  readsPrefixes: true,
  costsAreMs: true,
  options: [foreignRequestTokens, ...believedCreditOptions],
  create: (option) => composePolicy(predictedLatencyParts(option)),
};

/**
 * What the policy is composed of. Only an ablation changes its constants.
 *
 * @param option returns the value of an option of `predictedLatency`
 */
export function predictedLatencyParts(
  option: (name: string) => number,
  constants: { readonly nearTieMs?: number; readonly stallMs?: number; readonly avoidableStalls?: number } = {},
): PolicyParts {
  const credits = tierCredits(option);
  return {
    name: "predicted_latency",
    filters: [weightedOnly, belowHotspot],
    terms: [
      { scorer: backlog, weight: 1 },
      { scorer: createForeignBacklog(option(foreignRequestTokens.name)), weight: 1 },
      { scorer: requestLoad, weight: requestMs },
      { scorer: createOwnWork(constants.stallMs ?? stallMs, constants.avoidableStalls), weight: 1 },
      { scorer: createFetchTime(credits), weight: 1 },
      { scorer: createAdapterLoadMs(), weight: 1 },
      { scorer: ownership, weight: 1 },
      { scorer: network, weight: 1 },
    ],
    picker: createSecondCopyPicker(
      createNearTiePicker({
        reason: "least_time",
        tolerance: constants.nearTieMs ?? nearTieMs,
        tieBreaker: requestLoad,
        peers: new PeerLoad({ commonTerms: 3, amountOf: peerLoadMs, tieCost: 0 }),
      }),
      { ownTerm: 3, ownMs: ownMsOf },
    ),
  };
}

/** Estimated load that peers have sent and not published yet, in milliseconds of the mean candidate. */
function peerLoadMs(decision: Decision): number {
  const { request, eligible, eligibleCount } = decision;
  const { estimatedPeerTokens = 0 } = request;
  if (!(estimatedPeerTokens > 0)) return 0;
  let sum = 0;
  for (let place = 0; place < eligibleCount; place++) sum += tokenMsOf(decision, eligible[place]!);
  return (estimatedPeerTokens * sum) / eligibleCount;
}

/**
 * A candidate may have this many times the mean of requests in flight. Near the saturation limit, engines that compute
 * long prompts separate by themselves from engines that write answers, which saves a quarter of the time to first token
 * ...
 */
const mostOverMean = 3;
/** ... plus this many. If few requests are in flight, the engine that holds the prefix may have all of them. */
const freeRequests = 16;

/**
 * Leaves out candidates with far more requests in flight than the mean for their weight. This bounds every hotspot,
 * whatever the caches and times are believed to be. Some candidate is always at or below the mean (the bound of
 * Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads", 2016, with some slack for small
 * numbers).
 */
const belowHotspot: Filter = {
  name: "below_hotspot",
  keep({ candidates: { inFlight, weight }, eligible, eligibleCount }) {
    let requests = 0;
    let weights = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      requests += inFlight[index]!;
      weights += countingWeight(weight[index]!);
    }
    const bound = (mostOverMean * (requests + 1)) / weights + freeRequests;
    let kept = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (inFlight[index]! <= bound * countingWeight(weight[index]!)) eligible[kept++] = index;
    }
    return kept;
  },
};
