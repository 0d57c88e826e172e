import type { RunRecord, SimResult } from "../run.ts";
import { summarize } from "../workload/index.ts";
import { addResult, emptySums, type SentSums, sendingSpan, toRequestResult, totalSums } from "./results.ts";

/** Quality of the requests sent between two moments of a run. Meaningless figures are absent. */
interface FaultPhase {
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
  /** Whole seconds since the end of the fault; absent when quality did not recover. */
  readonly seconds_to_recover?: number;
}

/**
 * Quality before, during and after the fault of a run. `before` is the second half of the time before the fault,
 * because caches are still filling in the first half. A request belongs to the phase in which it was sent. A load
 * sample belongs to the phase in which it was taken, while requests are being sent.
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

/** Seconds over which quality is averaged. */
const windowS = 5;
/** Relative tolerance within which quality counts as recovered. */
const tolerance = 0.05;

/** Maximum seconds of a run that are examined; a longer run is judged by these. */
export const maxRecoverySeconds = 100_000;

interface Quality {
  readonly ttftMs: number;
  readonly followupShare: number;
  readonly errorShare: number;
}

interface Limits {
  readonly maxTtftMs: number;
  readonly minFollowupShare: number;
  readonly maxErrorShare: number;
}

/**
 * Whole seconds from the end of a fault until quality recovers. From that second on, every window of 5 s has requests,
 * a mean TTFT at most 5 % above that before the fault, a follow-up cached share at most 5 % below it, and no larger
 * share of failed requests. The worst values of any window before the fault are also accepted, so that noise is not
 * taken for damage. A window starts at the second it judges and ends before the last request is sent.
 *
 * @param moments.warmMs from here to the fault's beginning is "before"
 * @returns undefined when quality did not recover, or when there is nothing to compare with
 */
export function secondsToRecover(
  results: readonly SimResult[],
  moments: { readonly warmMs: number; readonly faultFromMs: number; readonly faultToMs: number },
): number | undefined {
  const { toMs } = sendingSpan(results);
  const limits = limitsOf(windowsOf(results, moments.warmMs, moments.faultFromMs));
  if (limits === undefined) return undefined;
  const after = windowsOf(results, moments.faultToMs, toMs).windows;
  if (after.length === 0) return undefined;
  const lastBad = after.findLastIndex((quality) => !isWithin(quality, limits));
  return lastBad === after.length - 1 ? undefined : lastBad + 1;
}

function windowsOf(
  results: readonly SimResult[],
  fromMs: number,
  toMs: number,
): { readonly whole: Quality; readonly windows: readonly Quality[] } {
  const count = Math.min(maxRecoverySeconds, Math.max(0, Math.floor((toMs - fromMs) / 1_000)));
  const seconds = Array.from({ length: count }, emptySums);
  for (const result of results) {
    const second = seconds[Math.floor((result.sentMs - fromMs) / 1_000)];
    if (second !== undefined) addResult(second, result);
  }
  const windows: Quality[] = [];
  for (let first = 0; first + windowS <= count; first++) {
    windows.push(qualityOf(totalSums(seconds.slice(first, first + windowS))));
  }
  return { whole: qualityOf(totalSums(seconds)), windows };
}

function qualityOf(sums: SentSums): Quality {
  return {
    ttftMs: sums.ttftSumMs / sums.ttftCount,
    followupShare: sums.followupCachedTokens / sums.followupPromptTokens,
    errorShare: sums.errors / sums.requests,
  };
}

function limitsOf(before: ReturnType<typeof windowsOf>): Limits | undefined {
  const { whole, windows } = before;
  if (Number.isNaN(whole.ttftMs)) return undefined;
  let maxTtftMs = whole.ttftMs * (1 + tolerance);
  let minFollowupShare = whole.followupShare * (1 - tolerance);
  let maxErrorShare = whole.errorShare;
  for (const { ttftMs, followupShare, errorShare } of windows) {
    if (ttftMs > maxTtftMs) maxTtftMs = ttftMs;
    if (followupShare < minFollowupShare) minFollowupShare = followupShare;
    if (errorShare > maxErrorShare) maxErrorShare = errorShare;
  }
  return { maxTtftMs, minFollowupShare, maxErrorShare };
}

/** Without follow-ups, in the workload or in a window, the other figures decide. */
function isWithin(quality: Quality, limits: Limits): boolean {
  const hasShare = !Number.isNaN(quality.followupShare) && !Number.isNaN(limits.minFollowupShare);
  return (
    quality.ttftMs <= limits.maxTtftMs &&
    quality.errorShare <= limits.maxErrorShare &&
    (!hasShare || quality.followupShare >= limits.minFollowupShare)
  );
}
