import type { Restriction, Selection, TargetSelector } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "./planned-request.ts";

/**
 * Chooses a target. What has failed at one engine already goes to those that health checks find up while there are any,
 * and not to others that are only tried: the first attempt may find out how they are, a client's second one should not.
 */
export function selectSure(
  selector: TargetSelector,
  plan: PlannedRequest,
  targets: readonly Target[],
  restriction: Restriction<Target> & { readonly accepts: (target: Target) => boolean },
): Selection<Target> | undefined {
  const { accepts, tried } = restriction;
  if (tried.size > 0 && targets.some(({ engine }) => engine.isTried)) {
    const isSure = (target: Target): boolean => target.engine.state === "up" && accepts(target);
    const sure = selector.select(plan.pool, targets, plan, { ...restriction, accepts: isSure });
    if (sure) return sure;
  }
  return selector.select(plan.pool, targets, plan, restriction);
}
