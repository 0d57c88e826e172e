import type { RouterContext } from "../router-context.ts";
import { goodputOf } from "./goodput.ts";
import type { PlannedRequest } from "./planned-request.ts";
import {
  type HookAnswer,
  outcomeStatus,
  type RequestEnd,
  type RequestOutcome,
  requestOutcome,
} from "./request-outcome.ts";
import { endTrace } from "./request-trace.ts";

type Watchers = Pick<RouterContext, "clock" | "decisions" | "hooks" | "metrics" | "logger" | "recorder" | "tracer">;

/** Reports the end of a planned request to metrics, log and trace. */
export function reportEnd(context: Watchers, plan: PlannedRequest, end: RequestEnd): void {
  const { clock, decisions, metrics, recorder } = context;
  const { endpointId, pool, acceptedMs } = plan;
  const { error, usage, answerEnd, dispatchedMs, firstByteMs, outputTokens } = end;
  const endMs = clock.nowMs();
  const [outcome, status] = [requestOutcome(end), outcomeStatus(end)];
  const answer: HookAnswer = {
    requestId: plan.requestId,
    model: pool.model,
    status,
    outcome,
    error: error?.code,
    engine: end.selection?.target.engine.id,
    attempts: end.attempts,
    durationMs: endMs - acceptedMs,
    promptTokens: usage?.promptTokens,
    cachedTokens: usage?.cachedTokens,
    completionTokens: usage?.completionTokens,
  };
  plan.step?.ended({ isAnswered: outcome === "answered" && status < 400, ...answer, answerEnd, outputTokens });
  metrics.finished(endpointId, answer, firstByteMs - acceptedMs, goodputOf(plan, end, { outcome, endMs }));
  context.hooks?.answered?.(answer);
  if (decisions.isWatched) {
    const { requestId, attempts } = answer;
    decisions.ended({ requestId, outcome, status, attempts, durationMs: Math.round(answer.durationMs) });
  }
  if (!Number.isNaN(dispatchedMs)) metrics.overhead((dispatchedMs - acceptedMs) / 1_000);
  log(context, plan, end, outcome);
  if (recorder.isOn) recorder.ended({ plan, promptTokens: usage?.promptTokens, outputTokens });
  if (context.tracer.isOn) endTrace(context, plan, end);
}

function log(
  { logger }: Watchers,
  { requestId, pool }: PlannedRequest,
  end: RequestEnd,
  outcome: RequestOutcome,
): void {
  const { selection, attempts } = end;
  const fields = { requestId, model: pool.model, engine: selection?.target.engine.id, attempts, outcome };
  if (outcome === "answered" || outcome === "cancelled") logger.debug("request", fields);
  else logger.warn("request failed", { ...fields, code: "error" in end.outcome ? end.outcome.error.code : undefined });
}
