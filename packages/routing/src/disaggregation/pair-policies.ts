import { composePolicy, createLeastCostPicker, type Policy, type Scorer, weightedOnly } from "@espalier/policies";
import type { TransferCost } from "./transfer-cost.ts";

/** 10,000 tokens per second, until something is learned. */
const usualPrefillMsPerToken = 0.1;

/**
 * Weight of a stalled answer relative to a waiting prompt. In the simulator's `pd-mix`, values from 0.05 to 0.2 end
 * answers at the same time within 4 % of the mean; at 1, engines that only prefill get queues of seconds.
 */
const stallShare = 0.1;

/**
 * The policy for prefill engines: the least time for the request and for the answers that it stalls, in milliseconds.
 */
export function createPrefillPolicy(): Policy {
  return composePolicy({
    name: "least_work",
    filters: [weightedOnly],
    terms: [{ scorer: prefillCost, weight: 1 }],
    picker: createLeastCostPicker(),
  });
}

const prefillCost: Scorer = {
  name: "prefill_ms",
  score({ request: { promptTokens }, candidates, eligible, eligibleCount }, out) {
    for (let place = 0; place < eligibleCount; place++) {
      const at = eligible[place]!;
      const learned = candidates.prefillMsPerToken[at]!;
      const perToken = learned > 0 ? learned : usualPrefillMsPerToken;
      const perPair = candidates.prefillMsPerTokenPair[at]!;
      const matched = Math.min(promptTokens, candidates.matchedTokens[at]! + candidates.matchedCpuTokens[at]!);
      const uncached = promptTokens - matched;
      const ownMs = uncached * (perToken + (perPair > 0 ? perPair * (matched + uncached / 2) : 0));
      const running = candidates.running[at]!;
      const answers = Math.max(candidates.inFlight[at]!, Number.isNaN(running) ? 0 : running);
      const backlog = candidates.backlogMs[at]!;
      const waitMs = backlog >= 0 ? backlog : candidates.pendingPrefillTokens[at]! * perToken;
      out[at] = (waitMs + ownMs * (1 + stallShare * answers)) / (candidates.weight[at]! || 1);
    }
  },
};

/**
 * What one more answer in the batch adds to a decode step, and what a token of its context adds (KV read at 3 TB/s).
 */
const stepMsPerAnswer = 0.02;
const stepMsPerContextToken = 0.000_04;
/** KV use from which a long prompt is likely to evict other blocks. */
const fullShare = 0.95;

/**
 * The policy for decode engines, in milliseconds of this request: transferring the blocks, the prefill before its first
 * step, the speed of the steps, and free KV blocks.
 */
export function createDecodePolicy(cost: Pick<TransferCost, "msPerToken">): Policy {
  return composePolicy({
    name: "least_tokens",
    filters: [weightedOnly],
    terms: [{ scorer: createDecodeCost(cost), weight: 1 }],
    picker: createLeastCostPicker(),
  });
}

function createDecodeCost(cost: Pick<TransferCost, "msPerToken">): Scorer {
  return {
    name: "decode_ms",
    score({ request, candidates, eligible, eligibleCount }, out) {
      const { promptTokens, expectedOutputTokens } = request;
      for (let place = 0; place < eligibleCount; place++) {
        const at = eligible[place]!;
        const learned = candidates.prefillMsPerToken[at]!;
        const prefillMs = learned > 0 ? learned : usualPrefillMsPerToken;
        const moved = Math.max(0, promptTokens - candidates.matchedTokens[at]!);
        const weight = candidates.weight[at]! || 1;
        const stepMs =
          stepMsPerAnswer * candidates.inFlight[at]! + stepMsPerContextToken * candidates.decodeTokens[at]!;
        const waitingMs = candidates.pendingPrefillTokens[at]! * prefillMs;
        // What does not fit evicts other blocks, which must be computed again.
        const overflow = candidates.kvUse[at]! > fullShare ? moved * prefillMs : 0;
        out[at] =
          cost.msPerToken * moved + overflow + (waitingMs + stepMs * Math.max(1, expectedOutputTokens)) / weight;
      }
    },
  };
}

/** Signals of the chosen engine at the time of the decision. */
export interface ChosenSignals {
  /** Requests running there: those sent, or those the engine reports if that is more. */
  readonly running: number;
  /** Queued prefill, in milliseconds. */
  readonly backlogMs: number;
  readonly prefillMsPerToken: number;
  /** Time for every earlier token that a token attends to; 0 until it is learned. */
  readonly prefillMsPerTokenPair: number;
}

/** A policy that keeps the signals of its last choice. */
export interface ProbedPolicy {
  readonly policy: Policy;
  /** Signals of the last choice. */
  readonly chosen: ChosenSignals;
}

/** Wraps a policy so that the signals of its last choice are kept. */
export function probePolicy(policy: Policy): ProbedPolicy {
  const chosen = { running: 0, backlogMs: 0, prefillMsPerToken: usualPrefillMsPerToken, prefillMsPerTokenPair: 0 };
  return {
    chosen,
    policy: {
      ...policy,
      choose(request, candidates, random) {
        const choice = policy.choose(request, candidates, random);
        const at = choice.index;
        const learned = candidates.prefillMsPerToken[at]!;
        const perPair = candidates.prefillMsPerTokenPair[at]!;
        chosen.prefillMsPerTokenPair = Number.isNaN(perPair) ? 0 : perPair;
        const running = candidates.running[at]!;
        const sent = candidates.inFlight[at]!;
        chosen.prefillMsPerToken = learned > 0 ? learned : usualPrefillMsPerToken;
        chosen.running = Math.max(sent, Number.isNaN(running) ? 0 : running);
        const backlog = candidates.backlogMs[at]!;
        chosen.backlogMs = backlog >= 0 ? backlog : candidates.pendingPrefillTokens[at]! * chosen.prefillMsPerToken;
        return choice;
      },
      explain: (request, candidates) => policy.explain(request, candidates),
    },
  };
}
