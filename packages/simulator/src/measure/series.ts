import type { RunRecord, SimResult } from "../run.ts";
import { percentile } from "../workload/index.ts";
import { addResult, emptySums, sendingSpan } from "./results.ts";

/** Maximum points in a series; a longer run has wider time steps. */
export const maxSeriesPoints = 2_000;

/** TTFT at one share of the requests with a first token. */
export interface QuantilePoint {
  /** 0 to 1. */
  readonly share: number;
  readonly seconds: number;
}

/** Running and waiting requests of the engines, over one time step. */
export interface LoadPoint {
  readonly atS: number;
  /** Over all engines. */
  readonly mean: number;
  /** Of the engine with the fewest or the most at any moment of the step. */
  readonly min: number;
  readonly max: number;
}

/** Shares of prompt tokens found in caches, for requests sent in one time step; absent when there were none. */
export interface CachedPoint {
  readonly atS: number;
  readonly share?: number;
  readonly followupShare?: number;
}

/**
 * The distribution of TTFT as evenly spaced quantiles, from the fastest to the slowest.
 *
 * @param points 2 to `maxSeriesPoints`
 * @returns nothing for a run without first tokens
 * @throws RangeError for another number of points
 */
export function ttftQuantiles(results: readonly SimResult[], points = 201): QuantilePoint[] {
  if (!(points >= 2 && points <= maxSeriesPoints)) {
    throw new RangeError(`${points} points are not between 2 and ${maxSeriesPoints}`);
  }
  const seconds = Float64Array.from(
    results.filter(({ error, firstTokenMs }) => error === undefined && !Number.isNaN(firstTokenMs)),
    ({ firstTokenMs, sentMs }) => (firstTokenMs - sentMs) / 1_000,
  ).sort();
  if (seconds.length === 0) return [];
  return Array.from({ length: points }, (_, point) => {
    const share = point / (points - 1);
    return { share, seconds: percentile(seconds, 100 * share) };
  });
}

/** Load of the engines over time: one point per sample, or per several neighbouring samples of a long run. */
export function loadOverTime({ samples }: Pick<RunRecord, "samples">): LoadPoint[] {
  const step = Math.max(1, Math.ceil(samples.length / maxSeriesPoints));
  const series: LoadPoint[] = [];
  for (let first = 0; first < samples.length; first += step) {
    const group = samples.slice(first, first + step);
    let min = Number.POSITIVE_INFINITY;
    let max = Number.NEGATIVE_INFINITY;
    let sum = 0;
    let count = 0;
    for (const { load } of group) {
      for (const requests of load) {
        min = Math.min(min, requests);
        max = Math.max(max, requests);
        sum += requests;
      }
      count += load.length;
    }
    if (count > 0) series.push({ atS: samples[first]!.atMs / 1_000, mean: sum / count, min, max });
  }
  return series;
}

/** Cached shares over time: one point per second, or per several seconds of a long run. */
export function cachedOverTime(results: readonly SimResult[]): CachedPoint[] {
  if (results.length === 0) return [];
  const { fromMs, toMs } = sendingSpan(results);
  const firstS = Math.floor(fromMs / 1_000);
  const seconds = Math.floor(toMs / 1_000) - firstS + 1;
  const stepS = Math.ceil(seconds / maxSeriesPoints);
  const steps = Array.from({ length: Math.ceil(seconds / stepS) }, emptySums);
  for (const result of results) addResult(steps[Math.floor((result.sentMs / 1_000 - firstS) / stepS)]!, result);
  return steps.map(({ promptTokens, cachedTokens, followupPromptTokens, followupCachedTokens }, step) => ({
    atS: firstS + step * stepS,
    ...(promptTokens === 0 ? {} : { share: cachedTokens / promptTokens }),
    ...(followupPromptTokens === 0 ? {} : { followupShare: followupCachedTokens / followupPromptTokens }),
  }));
}
