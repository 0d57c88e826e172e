import type { Policy } from "@espalier/policies";

/** What was known, at the decision, of the engine that a policy chose. */
export interface ChosenSignals {
  /** Requests that run there: those that were sent, or what the engine says when that is more. */
  readonly running: number;
  /** Prefill that waits there, in milliseconds. */
  readonly backlogMs: number;
  readonly prefillMsPerToken: number;
  /** For every earlier token that a token attends to; 0 where it is not learned. */
  readonly prefillMsPerTokenPair: number;
}

/** A policy that remembers what it saw of its last choice. */
export interface ProbedPolicy {
  readonly policy: Policy;
  /** Of the last choice. */
  readonly chosen: ChosenSignals;
}

/** 10,000 tokens a second, where nothing is learned. */
export const usualPrefillMsPerToken = 0.1;

/** Lets a policy choose as it does, and keeps what was known of the engine that it chose. */
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
