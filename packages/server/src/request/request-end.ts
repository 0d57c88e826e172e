import type { RouterContext } from "../router-context.ts";
import type { PlannedRequest } from "./planned-request.ts";
import { outcomeStatus } from "./relay.ts";
import { endTrace, type TracedEnd } from "./request-trace.ts";

/** How a request ended, for metrics, log and trace. */
export interface ReportedEnd extends TracedEnd {
  /** When it was first sent to an engine, less its time in the queue; NaN if never sent. */
  readonly dispatchedMs: number;
  /** NaN when no byte came. */
  readonly firstByteMs: number;
  readonly outputTokens: number;
}

type Watchers = Pick<RouterContext, "clock" | "hooks" | "metrics" | "logger" | "recorder" | "tracer">;

/** Reports the end of a planned request to metrics, log and trace. */
export function reportEnd(context: Watchers, plan: PlannedRequest, end: ReportedEnd): void {
  const { clock, metrics, recorder } = context;
  const { endpointId, pool, acceptedMs } = plan;
  const { outcome, error, usage, dispatchedMs, firstByteMs, outputTokens } = end;
  metrics.finished({
    endpoint: endpointId,
    model: pool.model,
    status: outcomeStatus(outcome, error),
    durationS: (clock.nowMs() - acceptedMs) / 1_000,
    firstByteS: (firstByteMs - acceptedMs) / 1_000,
    promptTokens: usage?.promptTokens,
    completionTokens: usage?.completionTokens,
    cachedTokens: usage?.cachedTokens,
  });
  context.hooks?.answered?.({
    requestId: plan.requestId,
    model: pool.model,
    status: outcomeStatus(outcome, error),
    error: error?.code,
    engine: end.selection?.target.engine.id,
    attempts: end.attempts,
    durationMs: clock.nowMs() - acceptedMs,
    promptTokens: usage?.promptTokens,
    cachedTokens: usage?.cachedTokens,
    completionTokens: usage?.completionTokens,
  });
  if (!Number.isNaN(dispatchedMs)) metrics.overhead((dispatchedMs - acceptedMs) / 1_000);
  log(context, plan, end);
  if (recorder.isOn) recorder.ended({ plan, promptTokens: usage?.promptTokens, outputTokens });
  if (context.tracer.isOn) endTrace(context, plan, end);
}

function log({ logger }: Watchers, { requestId, pool }: PlannedRequest, end: ReportedEnd): void {
  const { outcome, selection, attempts } = end;
  const worker = selection?.target.engine.id;
  const { model } = pool;
  if (outcome.kind === "failed" || outcome.kind === "cut") {
    const { code } = outcome.error;
    logger.warn("request failed", { requestId, model, worker, attempts, outcome: outcome.kind, code });
  } else logger.debug("request", { requestId, model, worker, attempts, outcome: outcome.kind });
}
