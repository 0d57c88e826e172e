import type { Target } from "@espalier/engines";
import type { RequestLifecycle, Selection } from "@espalier/routing";
import { describeDecision } from "../admin/decision-feed.ts";
import type { RouterContext } from "../router-context.ts";
import type { PlannedRequest } from "./planned-request.ts";

type Announcing = Pick<RouterContext, "admission" | "clock" | "decisionLog" | "decisions" | "hooks" | "metrics">;

/** Tells metrics, log, watchers and hooks of the engine that was chosen for an attempt. */
export function announceDecision(
  context: Announcing,
  plan: PlannedRequest,
  lifecycle: RequestLifecycle<Target>,
  selection: Selection<Target>,
): void {
  const { decisionLog, decisions, hooks, metrics } = context;
  const { pool, requestId, features } = plan;
  metrics.decided(pool.policy.name, selection.reason);
  const decision = describeDecision(context, plan, lifecycle);
  decisionLog.name(selection.logged, requestId, decision);
  if (decisions.isWatched) decisions.note(decision, { requestId, sessionKey: features.sessionKey });
  hooks?.decided?.({
    requestId,
    model: pool.model,
    policy: pool.policy.name,
    reason: selection.reason,
    engine: selection.target.engine.id,
    attempt: lifecycle.attempts + 1,
    promptTokens: features.promptTokens,
    matchedTokens: selection.matchedTokens,
  });
}
