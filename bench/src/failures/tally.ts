import { percentile } from "@espalier/simulator";
import { attemptsHeader, type Outcome, retryAfterHeader } from "./failover-client.ts";

/** The outcome of requests. */
export interface Tally {
  readonly requests: number;
  readonly completed: number;
  /** No answer, an unsuccessful status, or a non-streamed answer that broke off. */
  readonly failed: readonly Outcome[];
  /** Streams that began but did not end properly. */
  readonly cut: readonly Outcome[];
  /** Refused connections that another address accepted. */
  readonly refused: number;
}

export function tally(outcomes: readonly Outcome[]): Tally {
  const wrong = outcomes.filter(({ error }) => error !== undefined);
  const hasBegun = ({ isStream, status }: Outcome): boolean => isStream && status === 200;
  return {
    requests: outcomes.length,
    completed: outcomes.length - wrong.length,
    failed: wrong.filter((each) => !hasBegun(each)),
    cut: wrong.filter(hasBegun),
    refused: outcomes.reduce((sum, { refused }) => sum + refused, 0),
  };
}

/** From one moment (inclusive) to another (exclusive), on the clock that timed the answers. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** @returns the cached share of the prompts' tokens, 0 to 1; NaN without answers */
export function cachedShare(outcomes: readonly Outcome[], { fromMs, toMs }: Span): number {
  const within = outcomes.filter(({ startMs }) => startMs >= fromMs && startMs < toMs);
  const prompt = within.reduce((sum, { promptTokens = 0 }) => sum + promptTokens, 0);
  return within.reduce((sum, { cachedTokens = 0 }) => sum + cachedTokens, 0) / prompt;
}

/** Whether a router asked more than one engine. */
export function wasRetried({ headers }: Outcome): boolean {
  return Number(headers?.[attemptsHeader] ?? 1) > 1;
}

/** @returns ascending milliseconds to the first token, of the streams that had one */
export function firstTokenTimes(outcomes: readonly Outcome[]): Float64Array {
  const begun = outcomes.filter(({ isStream, firstTokenMs }) => isStream && !Number.isNaN(firstTokenMs));
  return Float64Array.from(begun, ({ startMs, firstTokenMs }) => firstTokenMs - startMs).sort();
}

/** @returns a percentile; NaN without values */
export function rankOf(ascending: Float64Array, percent: number): number {
  return ascending.length === 0 ? Number.NaN : percentile(ascending, percent);
}

/** @returns requests per second that ended well within a span and got their first token within a bound */
export function goodputOf(outcomes: readonly Outcome[], { fromMs, toMs }: Span, boundMs: number): number {
  const good = outcomes.filter(
    ({ error, startMs, firstTokenMs, endMs }) =>
      error === undefined && endMs >= fromMs && endMs < toMs && firstTokenMs - startMs <= boundMs,
  );
  return (good.length * 1_000) / (toMs - fromMs);
}

/** How routers answered requests that were sent in a span. */
export interface Refusals {
  readonly offered: number;
  readonly status429: number;
  readonly status503: number;
  /** Those of the two without a Retry-After header. */
  readonly withoutRetryAfter: number;
  /** Ended neither well nor with one of the two. */
  readonly otherwise: number;
}

export function refusalsOf(outcomes: readonly Outcome[], { fromMs, toMs }: Span): Refusals {
  const within = outcomes.filter(({ startMs }) => startMs >= fromMs && startMs < toMs);
  const refused = within.filter(({ status }) => status === 429 || status === 503);
  return {
    offered: within.length,
    status429: refused.filter(({ status }) => status === 429).length,
    status503: refused.filter(({ status }) => status === 503).length,
    withoutRetryAfter: refused.filter(({ headers }) => !/^[1-9]\d*$/.test(headers?.[retryAfterHeader] ?? "")).length,
    otherwise: within.filter(({ error, status }) => error !== undefined && status !== 429 && status !== 503).length,
  };
}

/** The first few failures, one sentence each. */
export function describeWrong(outcomes: readonly Outcome[]): readonly string[] {
  return outcomes
    .slice(0, 3)
    .map(({ engine, status, error }) => `${engine ?? "no engine"}, status ${status}: ${error}`);
}
