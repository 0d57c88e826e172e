import { defaultObjectives, type Objectives } from "@espalier/policies";
import type { SimResult } from "../run.ts";
import { goodputShare } from "../workload/summarize.ts";
import { sendingSpan, toRequestResult } from "./results.ts";

/** Maximum runs of one search. */
export const maxKneeRuns = 14;

/** Minimum share of the offered requests that must be answered within the same time. */
const minCompletedShare = 0.97;
/** Maximum ratio of the mean TTFT in the second half of a run to that in the first half. */
const maxTtftGrowth = 2;
/** Minimum share of all requests that must keep their objectives. */
const minGoodput = 0.9;

/** One run of a search. */
export interface KneeRun {
  readonly scale: number;
  readonly load: KneeLoad;
  readonly isSustained: boolean;
}

export interface Knee {
  /** The largest scale that was sustained. For a knee below the bounds: the lower bound, which was not sustained. */
  readonly scale: number;
  /** Whether the knee is between the bounds, below both or above both. */
  readonly position: "between" | "below" | "above";
  /**
   * Smallest scale not sustained, divided by the largest sustained, minus 1; absent unless the knee is between the
   * bounds.
   */
  readonly relativeError?: number;
  readonly runs: readonly KneeRun[];
}

interface KneeSearchOptions {
  /** Runs the workload at a scale. A failure ends the search. */
  run(scale: number): Promise<KneeLoad>;
  /** Bounds of the search, both above 0. */
  readonly lowScale: number;
  readonly highScale: number;
  /** Required precision, as a share. */
  readonly relativeError?: number;
  /** Called after each run; `expectedRuns` is the number of runs, or one less. */
  onRun?(run: KneeRun, progress: { readonly runs: number; readonly expectedRuns: number }): void;
}

/**
 * Whether a fleet keeps up. It must answer at least 0.97 of the offered requests within the same time, and the mean
 * TTFT of the second half of the run must be at most twice that of the first half, and 0.9 of all requests must keep
 * their objectives. A run without first tokens is not sustained.
 */
export function isSustained(load: KneeLoad): boolean {
  return (
    load.completedPerS >= minCompletedShare * load.offeredPerS &&
    load.laterTtftS <= maxTtftGrowth * load.earlierTtftS &&
    load.goodput >= minGoodput
  );
}

/**
 * Finds the knee of a workload: the largest scale, a factor of its arrival rate, that the fleet sustains
 * (`isSustained`). Bisects the ratio of the bounds, so the first run is at their geometric mean. A bound itself is run
 * only when all runs point to it, because runs far above the knee are slow. Assumes that a fleet which sustains a scale
 * sustains all smaller ones.
 *
 * @returns the knee to `relativeError` (0.03), or as near as `maxKneeRuns` runs get
 * @throws RangeError when the bounds are not 0 < low < high, or the error is not above 0
 */
export async function findKnee(options: KneeSearchOptions): Promise<Knee> {
  const { lowScale, highScale, relativeError = 0.03 } = options;
  if (!(lowScale > 0 && highScale > lowScale && Number.isFinite(highScale))) {
    throw new RangeError(`no scales between ${lowScale} and ${highScale}`);
  }
  if (!(relativeError > 0)) throw new RangeError(`a relative error of ${relativeError} cannot be reached`);
  const runs: KneeRun[] = [];
  const expectedRuns = bisectionsFor(highScale / lowScale, relativeError);
  let sustained = lowScale;
  let overloaded = highScale;
  const isSustainedAt = async (scale: number): Promise<boolean> => {
    const load = await options.run(scale);
    const run = { scale, load, isSustained: isSustained(load) };
    runs.push(run);
    options.onRun?.(run, { runs: runs.length, expectedRuns: Math.max(expectedRuns, runs.length) });
    return run.isSustained;
  };
  while (runs.length < expectedRuns) {
    const scale = Math.sqrt(sustained * overloaded);
    if (await isSustainedAt(scale)) sustained = scale;
    else overloaded = scale;
  }
  if (sustained === lowScale && !(await isSustainedAt(lowScale))) return { scale: lowScale, position: "below", runs };
  if (overloaded === highScale && (await isSustainedAt(highScale)))
    return { scale: highScale, position: "above", runs };
  return { scale: sustained, position: "between", relativeError: overloaded / sustained - 1, runs };
}

/** Number of times a ratio must be halved until it is near 1, leaving one run for a bound. */
function bisectionsFor(ratio: number, relativeError: number): number {
  const halvings = Math.ceil(Math.log2(Math.log(ratio) / Math.log1p(relativeError)));
  return Math.min(maxKneeRuns - 1, Math.max(0, halvings));
}

/** How a fleet did at one scale of its workload. */
export interface KneeLoad {
  /** Requests sent per second in the second half of the sending time. */
  readonly offeredPerS: number;
  /** Requests answered without an error per second in the same time, no matter when they were sent. */
  readonly completedPerS: number;
  /** Mean TTFT of the requests sent in the first and in the second half; NaN when none had a first token. */
  readonly earlierTtftS: number;
  readonly laterTtftS: number;
  /** Share of all requests that met their objectives, as in a run's row. */
  readonly goodput: number;
}

/**
 * Measures a run for `findKnee`. Rates cover the second half of the sending time. Requests still being answered at its
 * end are no sign of overload, because as many were being answered at its start. All rates are NaN when all requests
 * were sent at once.
 */
export function kneeLoad(results: readonly SimResult[], objectives: Objectives = defaultObjectives): KneeLoad {
  const { fromMs, toMs } = sendingSpan(results);
  const middleMs = (fromMs + toMs) / 2;
  const halfS = (toMs - middleMs) / 1_000;
  let offered = 0;
  let completed = 0;
  const ttftSumMs = [0, 0];
  const ttftCount = [0, 0];
  for (const { sentMs, endMs, firstTokenMs, error } of results) {
    const isLater = sentMs > middleMs;
    if (isLater) offered++;
    if (error === undefined && endMs > middleMs && endMs <= toMs) completed++;
    if (error !== undefined || Number.isNaN(firstTokenMs)) continue;
    const half = isLater ? 1 : 0;
    ttftSumMs[half]! += firstTokenMs - sentMs;
    ttftCount[half]! += 1;
  }
  return {
    offeredPerS: offered / halfS,
    completedPerS: completed / halfS,
    earlierTtftS: ttftSumMs[0]! / ttftCount[0]! / 1_000,
    laterTtftS: ttftSumMs[1]! / ttftCount[1]! / 1_000,
    goodput: goodputShare(results.map(toRequestResult), { speed: 1, objectives }),
  };
}
