import type { RequestLifecycle } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { NotedDecision } from "./decision-feed.ts";

type DecidedRequest = Pick<RequestLifecycle<Target>, "selection" | "prefill" | "attempts" | "queuedMs">;

/** What is noted, for those who watch, of the decision that a request has just come to. */
export function describeDecision(
  { admission }: Pick<RouterContext, "admission">,
  { endpointId, pool, features, service }: Pick<PlannedRequest, "endpointId" | "pool" | "features" | "service">,
  { selection, prefill, attempts, queuedMs }: DecidedRequest,
): NotedDecision {
  return {
    endpoint: endpointId,
    model: pool.model,
    policy: pool.policy.name,
    reason: selection?.reason ?? "",
    target: selection?.target.key ?? "",
    promptTokens: features.promptTokens,
    matchedTokens: Math.min(selection?.matchedTokens ?? 0, features.promptTokens),
    sessionKey: features.sessionKey,
    class: service ? (service.className ?? admission.config.defaultClass) : null,
    queuedMs: Math.round(queuedMs),
    attempt: attempts + 1,
    prefillWorker: prefill?.target.engine.id ?? null,
  };
}
