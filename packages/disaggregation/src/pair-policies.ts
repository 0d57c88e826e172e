import { composePolicy, createLeastCostPicker, type Policy, type Scorer, weightedOnly } from "@espalier/policies";
import type { TransferCost } from "./transfer-cost.ts";

/** 10,000 tokens a second, where nothing is learned. */
const usualPrefillMsPerToken = 0.1;

/**
 * The weight of a stalled answer relative to a prompt that waits. In the simulator's `pd-mix`, answers end at the same
 * time within 4 % of the mean from 0.05 to 0.2; at 1, engines that only prefill get queues of seconds.
 */
const stallShare = 0.1;

/**
 * The policy for prefill engines: the least time for the request and for the answers that stall meanwhile, in milliseconds.
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

/** What one more answer in the batch adds to a decode step, and a token of context in it (KV read at 3 TB/s). */
const stepMsPerAnswer = 0.02;
const stepMsPerContextToken = 0.000_04;
/** Use of an engine's KV blocks from which on a long prompt is likely to push others out. */
const fullShare = 0.95;

/**
 * The policy for decode engines, in milliseconds of this request: the blocks to transfer, the prefill before its first step,
 * the speed of the steps, and free KV blocks.
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
        // What does not fit evicts other blocks, which are computed again.
        const overflow = candidates.kvUse[at]! > fullShare ? moved * prefillMs : 0;
        out[at] =
          cost.msPerToken * moved + overflow + (waitingMs + stepMs * Math.max(1, expectedOutputTokens)) / weight;
      }
    },
  };
}

/** Signals, at the decision, of the engine that a policy chose. */
export interface ChosenSignals {
  /** Requests that run there: those sent, or those the engine reports when that is more. */
  readonly running: number;
  /** Prefill that waits there, in milliseconds. */
  readonly backlogMs: number;
  readonly prefillMsPerToken: number;
  /** For every earlier token that a token attends to; 0 where it is not learned. */
  readonly prefillMsPerTokenPair: number;
}

/** A policy that keeps the signals of its last choice. */
export interface ProbedPolicy {
  readonly policy: Policy;
  /** Of the last choice. */
  readonly chosen: ChosenSignals;
}

/** Wraps a policy so that the signals of its last choice are kept. */
export function probePolicy(policy: Policy): ProbedPolicy {
  const chosen = { running: 0, backlogMs: 0, prefillMsPerToken: usualPrefillMsPerToken, prefillMsPerTokenPair: 0 };
  return {
    chosen,
    policy: {
      name: policy.name,
      prefixKeyTokens: policy.prefixKeyTokens,
      bindingTtlMs: policy.bindingTtlMs,
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
