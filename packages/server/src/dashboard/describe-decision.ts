import type { AdmissionTicket } from "@espalier/admission";
import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { SplitRun } from "../disaggregation/split-run.ts";
import type { NotedDecision } from "./decision-feed.ts";

/** How a decision came about, beyond the choice itself. */
export interface DecisionWay {
  /** From 1. */
  readonly attempt: number;
  /** Undefined for what never waits. */
  readonly admitted: Pick<AdmissionTicket, "waitedMs"> | undefined;
  /** Undefined for what one engine serves in any case. */
  readonly split: Pick<SplitRun, "prefillWorker"> | undefined;
}

/** What is noted of a decision for those who watch. */
export function describeDecision(
  { admission }: Pick<RouterContext, "admission">,
  { endpointId, pool, features, service }: Pick<PlannedRequest, "endpointId" | "pool" | "features" | "service">,
  { target, reason, matchedTokens }: Selection<Target>,
  { attempt, admitted, split }: DecisionWay,
): NotedDecision {
  return {
    endpoint: endpointId,
    model: pool.model,
    policy: pool.policy.name,
    reason,
    target: target.key,
    promptTokens: features.promptTokens,
    matchedTokens: Math.min(matchedTokens, features.promptTokens),
    sessionKey: features.sessionKey,
    class: service ? (service.className ?? admission.config.defaultClass) : null,
    queuedMs: Math.round(admitted?.waitedMs ?? 0),
    attempt,
    prefillWorker: split?.prefillWorker ?? null,
  };
}
