import type { RouterContext } from "../data-plane/router-context.ts";
import { endTrace, type TracedEnd } from "../tracing/end-trace.ts";
import type { PlannedRequest } from "./planned-request.ts";
import { outcomeStatus } from "./relay.ts";

/** How a request ended, for whoever watches the router. */
export interface ReportedEnd extends TracedEnd {
  /** Until it went out to an engine, without its wait for a turn; NaN when it never did. */
  readonly dispatchedMs: number;
  /** NaN when no byte came. */
  readonly firstByteMs: number;
}

type Watchers = Pick<RouterContext, "clock" | "metrics" | "logger" | "tracer">;

/** Tells metrics, log and trace of the end of a request that was planned. */
export function reportEnd(context: Watchers, plan: PlannedRequest, end: ReportedEnd): void {
  const { clock, metrics } = context;
  const { endpointId, pool, acceptedMs } = plan;
  const { outcome, error, usage, dispatchedMs, firstByteMs } = end;
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
  if (!Number.isNaN(dispatchedMs)) metrics.overhead((dispatchedMs - acceptedMs) / 1_000);
  log(context, plan, end);
  if (context.tracer.isOn) endTrace(context, plan, end);
}

function log({ logger }: Watchers, { requestId, pool }: PlannedRequest, end: ReportedEnd): void {
  const { outcome, selection, attempts } = end;
  const worker = selection?.target.engine.id;
  const fields = { requestId, model: pool.model, worker, attempts, outcome: outcome.kind };
  if (outcome.kind === "failed" || outcome.kind === "cut") {
    logger.warn("request failed", { ...fields, code: outcome.error.code });
  } else logger.debug("request", fields);
}
