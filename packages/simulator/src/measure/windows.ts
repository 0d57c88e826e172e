import type { SimResult } from "../run/run-result.ts";

/** Sums over requests that were sent in the same stretch of time. */
export interface SentSums {
  requests: number;
  errors: number;
  /** Of the answers that had a first token and no error. */
  ttftSumMs: number;
  ttftCount: number;
  /** Of the answers whose cached tokens are known. */
  promptTokens: number;
  cachedTokens: number;
  /** The same of every request of a session but its first. */
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

/** The figures of several stretches as one. */
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
