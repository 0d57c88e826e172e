import type { ExplainedCandidate, Explanation, Policy } from "@espalier/policies";
import type { PeerTraffic } from "./peer-traffic.ts";
import type { ChosenPull } from "./pulls/kv-pull.ts";
import type { RoutingTarget } from "./routing-target.ts";
import type { Restriction, RoutedRequest, SelectablePool, TargetSelector } from "./select-target.ts";

/** What a selector would see and do now. */
export interface ExplainedSelection<Target extends RoutingTarget> {
  readonly explanation: Explanation;
  /** The targets of `explanation.candidates`, in the same order. */
  readonly targets: readonly Target[];
  /** The most likely target; the first of equally likely ones. */
  readonly choice: Target;
  /** What that target would pull from another engine. */
  readonly pull: ChosenPull<Target> | undefined;
  /** Prefill tokens that other routers are expected to have sent without this one knowing. */
  readonly estimatedPeerTokens: number;
}

/**
 * Runs a selector with a policy that explains instead of choosing, so that the explanation matches a real decision.
 * Draws nothing and records nothing.
 *
 * @param selector must use `dryRunTraffic` and `dryRunSessions`: the request is not sent, so it must not count as
 * expected traffic of other routers, and must bind no session
 * @returns undefined if no target is usable
 */
export function explainSelection<Target extends RoutingTarget>(
  selector: TargetSelector,
  pool: SelectablePool,
  targets: readonly Target[],
  request: RoutedRequest,
  restriction: Restriction<Target>,
): ExplainedSelection<Target> | undefined {
  let seen: { readonly explanation: Explanation; readonly estimatedPeerTokens: number } | undefined;
  const policy = explainingPolicy(pool.policy, (explanation, estimatedPeerTokens) => {
    seen = { explanation, estimatedPeerTokens };
  });
  const selection = selector.select({ ...pool, policy }, targets, request, restriction);
  if (!selection || !seen) return undefined;
  return {
    ...seen,
    targets: seen.explanation.candidates.map(({ target }) => targets[target]!),
    choice: selection.target,
    pull: selection.pull,
  };
}

/**
 * Takes the candidate that a policy most likely takes (the first of equals), and leaves the policy unchanged.
 *
 * @param onExplained called with every choice
 */
export function explainingPolicy(
  policy: Policy,
  onExplained: (explanation: Explanation, estimatedPeerTokens: number) => void = () => {},
): Policy {
  return {
    ...policy,
    choose(request, candidates) {
      const explanation = policy.explain(request, candidates);
      onExplained(explanation, request.estimatedPeerTokens ?? 0);
      const index = likeliest(explanation.candidates);
      return { index, target: explanation.candidates[index]!.target, reason: explanation.reason, creditMs: 0 };
    },
  };
}

/** Reads what peers may have sent, and records no decisions. */
export function dryRunTraffic(traffic: PeerTraffic): PeerTraffic {
  return { ...traffic, sent() {} };
}

function likeliest(candidates: readonly ExplainedCandidate[]): number {
  let best = 0;
  for (const [index, { probability }] of candidates.entries()) {
    if (probability > candidates[best]!.probability) best = index;
  }
  return best;
}
