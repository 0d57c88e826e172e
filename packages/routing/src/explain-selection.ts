import type { ExplainedCandidate, Explanation, Policy } from "@espalier/policies";
import type { PeerTraffic } from "./peer-traffic.ts";
import type { RoutingTarget } from "./routing-target.ts";
import type { Restriction, RoutedRequest, SelectablePool, TargetSelector } from "./select-target.ts";

/** What a selector would see and do now. */
export interface ExplainedSelection<Target extends RoutingTarget> {
  readonly explanation: Explanation;
  /** The targets of `explanation.candidates`, in their order. */
  readonly targets: readonly Target[];
  /** The likeliest one; of equally likely ones the first. */
  readonly choice: Target;
  /** Prefill tokens that other routers are expected to have sent without this one knowing. */
  readonly unseenTokens: number;
}

/**
 * Lets a selector decide with a policy that explains in place of choosing, so that what is explained is what would be
 * done. Draws nothing and notes nothing.
 *
 * @param selector made with `quietTraffic` and `quietSessions`, so that a request that is not sent is not expected of
 * other routers either, and binds no session
 * @returns undefined when no target is usable
 */
export function explainSelection<Target extends RoutingTarget>(
  selector: TargetSelector,
  pool: SelectablePool,
  targets: readonly Target[],
  request: RoutedRequest,
  restriction: Restriction<Target>,
): ExplainedSelection<Target> | undefined {
  let seen: { readonly explanation: Explanation; readonly unseenTokens: number } | undefined;
  const policy = explainingPolicy(pool.policy, (explanation, unseenTokens) => {
    seen = { explanation, unseenTokens };
  });
  const selection = selector.select({ ...pool, policy }, targets, request, restriction);
  if (!selection || !seen) return undefined;
  return {
    ...seen,
    targets: seen.explanation.candidates.map(({ target }) => targets[target]!),
    choice: selection.target,
  };
}

/**
 * Takes the candidate that a policy is likeliest to take, the first of several, and leaves the policy as it was.
 *
 * @param onExplained told of every choice
 */
export function explainingPolicy(
  policy: Policy,
  onExplained: (explanation: Explanation, unseenTokens: number) => void = () => {},
): Policy {
  return {
    ...policy,
    choose(request, candidates) {
      const explanation = policy.explain(request, candidates);
      onExplained(explanation, request.unseenTokens ?? 0);
      const index = likeliest(explanation.candidates);
      return { index, target: explanation.candidates[index]!.target, reason: explanation.reason, rentMs: 0 };
    },
  };
}

/** Reads what peers may have sent, and keeps what is decided to itself. */
export function quietTraffic(traffic: PeerTraffic): PeerTraffic {
  return { ...traffic, sent() {} };
}

function likeliest(candidates: readonly ExplainedCandidate[]): number {
  let best = 0;
  for (const [index, { probability }] of candidates.entries()) {
    if (probability > candidates[best]!.probability) best = index;
  }
  return best;
}
