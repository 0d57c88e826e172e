import { summarize } from "@espalier/workload";
import type { RunRecord } from "../run/run-result.ts";
import { secondsToRecover } from "./recovery.ts";
import { sendingSpan } from "./sending-span.ts";
import { toRequestResult } from "./to-request-result.ts";

/** Quality of the requests sent from one moment of a run to another. What has no meaning is absent. */
export interface FaultPhase {
  readonly from_s: number;
  readonly to_s: number;
  readonly requests: number;
  readonly errors: number;
  readonly ttft_mean_s?: number;
  readonly ttft_p90_s?: number;
  readonly ttft_p99_s?: number;
  readonly followup_cached_share?: number;
  readonly load_cov?: number;
  readonly load_cov_time?: number;
}

export interface FaultPhases {
  readonly before: FaultPhase;
  readonly during: FaultPhase;
  readonly after: FaultPhase;
  /** From the end of the fault, in whole seconds; absent when quality did not come back. */
  readonly seconds_to_recover?: number;
}

/**
 * Quality before, during and after the fault of a run. `before` is the later half of the time before the fault, because
 * in the earlier one caches are still filling. Requests belong to the phase in which they were sent, samples of load to
 * the one in which they were taken, as long as requests are sent.
 *
 * @param engines of the fleet, for the variation of load
 * @returns undefined for a run without a fault
 */
export function faultPhases(record: RunRecord, engines: number): FaultPhases | undefined {
  const { faultMs } = record;
  if (faultMs === undefined) return undefined;
  const { fromMs, toMs } = sendingSpan(record.results);
  const warmMs = fromMs + Math.max(0, faultMs.fromMs - fromMs) / 2;
  const recoverS = secondsToRecover(record.results, { warmMs, faultFromMs: faultMs.fromMs, faultToMs: faultMs.toMs });
  return {
    before: phase(record, engines, { fromMs: warmMs, toMs: faultMs.fromMs }),
    during: phase(record, engines, { fromMs: faultMs.fromMs, toMs: faultMs.toMs }),
    after: phase(record, engines, { fromMs: faultMs.toMs, toMs: Math.max(faultMs.toMs, toMs + 1) }),
    ...(recoverS === undefined ? {} : { seconds_to_recover: recoverS }),
  };
}

function phase(
  record: RunRecord,
  engines: number,
  span: { readonly fromMs: number; readonly toMs: number },
): FaultPhase {
  const isWithin = (atMs: number): boolean => atMs >= span.fromMs && atMs < span.toMs;
  const summary = summarize(record.results.filter(({ sentMs }) => isWithin(sentMs)).map(toRequestResult), {
    engines,
    speed: 1,
    loadSamples: record.samples.filter(({ atMs }) => isWithin(atMs)).map(({ load }) => load),
  });
  const { requests, errors, ttft_mean_s, ttft_p90_s, ttft_p99_s, followup_cached_share, load_cov, load_cov_time } =
    summary;
  return {
    from_s: span.fromMs / 1_000,
    to_s: span.toMs / 1_000,
    requests,
    errors,
    ...(ttft_mean_s === undefined ? {} : { ttft_mean_s }),
    ...(ttft_p90_s === undefined ? {} : { ttft_p90_s }),
    ...(ttft_p99_s === undefined ? {} : { ttft_p99_s }),
    ...(followup_cached_share === undefined ? {} : { followup_cached_share }),
    ...(load_cov === undefined ? {} : { load_cov }),
    ...(load_cov_time === undefined ? {} : { load_cov_time }),
  };
}
