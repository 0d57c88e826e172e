import type { Target } from "@espalier/workers";
import { servesAlone } from "../disaggregation/pair-roles.ts";

/** A target of the pool that is no candidate, and why. */
export interface LeftOut {
  readonly key: string;
  /** For people; every reason there is. */
  readonly reasons: readonly string[];
}

/**
 * @param isCandidate of the targets that the decision was made among
 * @param onlyEngine the one that holds what the request builds on, where there is one
 */
export function whyLeftOut(
  targets: readonly Target[],
  isCandidate: (target: Target) => boolean,
  onlyEngine: string | undefined,
): readonly LeftOut[] {
  return targets
    .filter((target) => !isCandidate(target))
    .map((target) => ({ key: target.key, reasons: reasonsOf(target, onlyEngine) }));
}

function reasonsOf({ engine }: Target, onlyEngine: string | undefined): readonly string[] {
  const { state, stateReason, draining, breaker, role, id } = engine;
  const reasons: string[] = [];
  if (state !== "up") reasons.push(`${state}: ${stateReason}`);
  if (draining) reasons.push("an operator has drained it");
  if (!breaker.allows) reasons.push(`its circuit breaker is ${breaker.state}: ${breaker.reason}`);
  if (onlyEngine !== undefined && id !== onlyEngine)
    reasons.push(`the response that this one follows is at ${onlyEngine}`);
  if (!servesAlone({ engine })) reasons.push(`its role is ${role}: it serves no request alone`);
  // What filters beyond these are, this list must not keep to itself.
  return reasons.length > 0 ? reasons : ["it is not among the candidates of this request"];
}
