import type { Restriction, Selection, TargetSelector } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "./planned-request.ts";

type Choosing = Restriction<Target> & { readonly accepts: (target: Target) => boolean };

/**
 * Chooses a target. What has failed at one engine already goes to those that health checks find up while there are any,
 * and not to others that are only tried: the first attempt may find out how they are, a client's second one should not.
 */
export function selectSure(
  selector: TargetSelector,
  plan: PlannedRequest,
  targets: readonly Target[],
  restriction: Choosing,
): Selection<Target> | undefined {
  const { pool, trace } = plan;
  trace?.picking();
  const sure = isTrying(targets, restriction) ? { ...restriction, accepts: isSure(restriction) } : undefined;
  const selection =
    (sure && selector.select(pool, targets, plan, sure)) ?? selector.select(pool, targets, plan, restriction);
  trace?.picked(pool.policy.name, selection);
  return selection;
}

function isTrying(targets: readonly Target[], { tried }: Choosing): boolean {
  return tried.size > 0 && targets.some(({ engine }) => engine.isTried);
}

function isSure({ accepts }: Choosing): (target: Target) => boolean {
  return (target) => target.engine.state === "up" && accepts(target);
}
