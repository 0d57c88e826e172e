import { sendingSpan } from "../measure/sending-span.ts";
import type { SimResult } from "../run/run-result.ts";

/** How a fleet did at one scale of its workload. */
export interface KneeLoad {
  /** Requests sent a second, in the later half of the sending time. */
  readonly offeredPerS: number;
  /** Requests answered without an error a second, in the same time, whenever they were sent. */
  readonly completedPerS: number;
  /** Mean TTFT of the requests sent in the earlier and in the later half; NaN when none had a first token. */
  readonly earlierTtftS: number;
  readonly laterTtftS: number;
}

/**
 * Measures a run for `findKnee`. Rates are over the later half of the sending time, so that a request which is still
 * being answered when the sending ends is no sign of overload: as many were being answered when that half began. All
 * rates are NaN when all requests were sent at once.
 */
export function kneeLoad(results: readonly SimResult[]): KneeLoad {
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
  };
}
