import { servesAlone } from "@espalier/routing";
import type { EngineRecord, Target } from "@espalier/workers";

/** A target of the pool that is no candidate, and why. */
export interface LeftOut {
  readonly key: string;
  /** For people; every reason there is. */
  readonly reasons: readonly string[];
}

export interface LeftOutReasons {
  /** The one that holds what the request builds on, where there is one. */
  readonly onlyEngine: string | undefined;
  /** Which side of pairs an engine keeps to; undefined where it does not. */
  readonly dutyOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

/** @param isCandidate of the targets that the decision was made among */
export function whyLeftOut(
  targets: readonly Target[],
  isCandidate: (target: Target) => boolean,
  known: LeftOutReasons,
): readonly LeftOut[] {
  return targets
    .filter((target) => !isCandidate(target))
    .map((target) => ({ key: target.key, reasons: reasonsOf(target, known) }));
}

function reasonsOf({ engine }: Target, { onlyEngine, dutyOf }: LeftOutReasons): readonly string[] {
  const { state, stateReason, draining, breaker, isOverruled, isTried, isResting, role, id } = engine;
  const reasons: string[] = [];
  if (state !== "up" && !isTried) reasons.push(`${state}: ${stateReason}`);
  if (draining) reasons.push("an operator has drained it");
  if (!breaker.allows && !isOverruled) reasons.push(`its circuit breaker is ${breaker.state}: ${breaker.reason}`);
  if (isResting) reasons.push("it asked to be left alone for a while (Retry-After)");
  if (onlyEngine !== undefined && id !== onlyEngine)
    reasons.push(`the response that this one follows is at ${onlyEngine}`);
  if (!servesAlone({ engine })) reasons.push(`its role is ${role}: it serves no request alone`);
  if (dutyOf(engine) === "prefill") reasons.push("it computes prompts for others, by the balance of roles");
  // What filters beyond these are, this list must not keep to itself.
  return reasons.length > 0 ? reasons : ["it is not among the candidates of this request"];
}
