import type { TrafficCounts } from "./overview.ts";

/** The counters of one router at a time of the page's clock. */
export interface TrafficSample {
  readonly atMs: number;
  readonly counts: TrafficCounts;
}

/** Rates over the last seconds; null where nothing was counted. */
export interface Rates {
  readonly requestsPerS: number;
  /** Requests that nobody took, that failed without any content, and that were cut after some. */
  readonly refusedPerS: number;
  readonly failedPerS: number;
  readonly cutPerS: number;
  /** Of prompt tokens, those that engines found in a cache. */
  readonly cachedShare: number | null;
  readonly firstByteMs: number | null;
  readonly outputTokensPerS: number;
}

/** The window of the rates. Routers report once a second, out of step with the page. */
const windowMs = 5_000;
/** Samples of a router that are kept. */
export const maxSamples = 64;

/** Adds a sample. A restarted router counts from zero: its earlier samples are dropped. */
export function addSample(samples: readonly TrafficSample[], sample: TrafficSample): readonly TrafficSample[] {
  const last = samples.at(-1);
  const isRestart = last !== undefined && sample.counts.requests < last.counts.requests;
  return [...(isRestart ? [] : samples), sample].slice(-maxSamples);
}

/** Differences over the window, summed over routers. */
export function ratesOf(routers: readonly (readonly TrafficSample[])[], nowMs: number): Rates {
  const sum = { requestsPerS: 0, refusedPerS: 0, failedPerS: 0, cutPerS: 0, outputTokensPerS: 0 };
  let [prompt, cached, firstBytes, firstByteMs] = [0, 0, 0, 0];
  for (const samples of routers) {
    const now = samples.at(-1);
    const before = samples.findLast(({ atMs }) => atMs <= nowMs - windowMs) ?? samples[0];
    if (!now || !before || now.atMs <= before.atMs) continue;
    const seconds = (Math.max(now.atMs, nowMs) - before.atMs) / 1_000;
    sum.requestsPerS += (now.counts.requests - before.counts.requests) / seconds;
    sum.refusedPerS += (now.counts.refused - before.counts.refused) / seconds;
    sum.failedPerS += (now.counts.failed - before.counts.failed) / seconds;
    sum.cutPerS += (now.counts.cut - before.counts.cut) / seconds;
    sum.outputTokensPerS += (now.counts.completionTokens - before.counts.completionTokens) / seconds;
    prompt += now.counts.promptTokens - before.counts.promptTokens;
    cached += now.counts.cachedTokens - before.counts.cachedTokens;
    firstBytes += now.counts.firstBytes - before.counts.firstBytes;
    firstByteMs += now.counts.firstByteMs - before.counts.firstByteMs;
  }
  return {
    ...sum,
    cachedShare: prompt > 0 ? cached / prompt : null,
    firstByteMs: firstBytes > 0 ? firstByteMs / firstBytes : null,
  };
}
