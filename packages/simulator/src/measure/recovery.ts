import type { SimResult } from "../run/run-result.ts";
import { sendingSpan } from "./sending-span.ts";
import { addResult, emptySums, type SentSums, totalSums } from "./windows.ts";

/** Seconds over which quality is averaged. */
const windowS = 5;
/** What is as good as before. */
const tolerance = 0.05;

/** Seconds of a run that are looked at; a longer run is judged by these. */
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
 * Whole seconds from the end of a fault until quality is back: the first second from which on every window of 5 s has
 * requests, a mean TTFT at most 5 % above that before the fault, a follow-up cached share at most 5 % below it, and no
 * larger share of failed requests. What a window before the fault had at worst counts as good as well, so that noise is
 * not taken for damage. Windows begin at the second that they judge, and end before the last request is sent.
 *
 * @param moments.warmMs from here to the fault's beginning is "before"
 * @returns undefined when it did not come back, or when there is nothing to compare with
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

/** A workload without follow-ups, and a window without any, is judged by the rest. */
function isWithin(quality: Quality, limits: Limits): boolean {
  const hasShare = !Number.isNaN(quality.followupShare) && !Number.isNaN(limits.minFollowupShare);
  return (
    quality.ttftMs <= limits.maxTtftMs &&
    quality.errorShare <= limits.maxErrorShare &&
    (!hasShare || quality.followupShare >= limits.minFollowupShare)
  );
}
