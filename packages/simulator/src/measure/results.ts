import type { SimResult } from "../run.ts";
import type { RequestResult } from "../workload/index.ts";

/** Sums over requests that were sent in the same stretch of time. */
export interface SentSums {
  requests: number;
  errors: number;
  /** Over answers with a first token and no error. */
  ttftSumMs: number;
  ttftCount: number;
  /** Over answers whose cached tokens are known. */
  promptTokens: number;
  cachedTokens: number;
  /** The same for every request of a session except its first. */
  followupPromptTokens: number;
  followupCachedTokens: number;
}

export function emptySums(): SentSums {
  return {
    requests: 0,
    errors: 0,
    ttftSumMs: 0,
    ttftCount: 0,
    promptTokens: 0,
    cachedTokens: 0,
    followupPromptTokens: 0,
    followupCachedTokens: 0,
  };
}

export function addResult(sums: SentSums, result: SimResult): void {
  const { request, sentMs, firstTokenMs, cachedTokens, error } = result;
  sums.requests++;
  if (error !== undefined) {
    sums.errors++;
    return;
  }
  if (!Number.isNaN(firstTokenMs)) {
    sums.ttftSumMs += firstTokenMs - sentMs;
    sums.ttftCount++;
  }
  if (Number.isNaN(cachedTokens)) return;
  sums.promptTokens += request.promptTokens;
  sums.cachedTokens += cachedTokens;
  if (request.turn === 0) return;
  sums.followupPromptTokens += request.promptTokens;
  sums.followupCachedTokens += cachedTokens;
}

/** Combines the figures of several stretches. */
export function totalSums(parts: readonly SentSums[]): SentSums {
  const total = emptySums();
  for (const part of parts) {
    total.requests += part.requests;
    total.errors += part.errors;
    total.ttftSumMs += part.ttftSumMs;
    total.ttftCount += part.ttftCount;
    total.promptTokens += part.promptTokens;
    total.cachedTokens += part.cachedTokens;
    total.followupPromptTokens += part.followupPromptTokens;
    total.followupCachedTokens += part.followupCachedTokens;
  }
  return total;
}

/** When the first and the last request were sent, in virtual milliseconds; both 0 without requests. */
export function sendingSpan(results: readonly SimResult[]): { readonly fromMs: number; readonly toMs: number } {
  if (results.length === 0) return { fromMs: 0, toMs: 0 };
  let fromMs = Number.POSITIVE_INFINITY;
  let toMs = Number.NEGATIVE_INFINITY;
  for (const { sentMs } of results) {
    fromMs = Math.min(fromMs, sentMs);
    toMs = Math.max(toMs, sentMs);
  }
  return { fromMs, toMs };
}

/**
 * Converts a simulated request to the form of any run's summary. The time after the first token counts as the gaps
 * between tokens.
 */
export function toRequestResult(result: SimResult): RequestResult {
  const { request, sentMs, firstTokenMs, endMs, cachedTokens, engine, error } = result;
  const streamedMs = endMs - firstTokenMs;
  return {
    index: request.index,
    session: String(request.session),
    turn: request.turn,
    startMs: sentMs,
    firstTokenMs,
    endMs,
    inputTokens: request.promptTokens,
    outputTokens: request.outputTokens,
    cachedTokens,
    engine: engine < 0 ? undefined : String(engine),
    error,
    itlSumMs: Number.isNaN(streamedMs) ? 0 : streamedMs,
    itlCount: Number.isNaN(streamedMs) ? 0 : request.outputTokens - 1,
    ...(request.className === undefined ? {} : { className: request.className }),
  };
}
