import type { Clock } from "@espalier/core";
import { tokenGraceMs } from "./engine-pace.ts";
import type { EngineRecord } from "./engine-record.ts";

/** What requests wait for at an engine. NaN for nothing. */
export interface EngineWait {
  /** Age of the oldest request in flight that has no first token, in milliseconds. */
  readonly oldestMs: number;
  /** For how long nothing has come from an engine that should have answered, in milliseconds. */
  readonly unresponsiveMs: number;
}

/** An engine that shows no sign of work for this long is unresponsive, beside the time for the longest prompt that waits there. */
const quietReadMs = 30_000;
/** The same where no metrics show whether it works for others. */
const quietUnreadMs = 60_000;
/** The longest prompt may take so many times what it takes at 1,000 tokens a second. */
const promptMargin = 2;
/** Signals that are older are not read any more. */
const readWithinMs = 15_000;

/**
 * An engine is unresponsive if it is up, streams without a first token are in flight there, and nothing at all has come from it
 * since the oldest of them was sent: no token of any request, no answer, no change of a number in its metrics. It is
 * unresponsive after 30 s, or 60 s where its metrics are not read, and 2 ms more for each token of the longest prompt that waits.
 *
 * So neither long prompts nor queues make an engine unresponsive: both change its metrics, and answers before them in the queue
 * are signs of work. Answers that are not streamed come at their end only, so they count where the engine says that it runs
 * nothing.
 */
export function waitOf(
  { state, targets, lastAnswerMs, lastChangeMs }: Pick<EngineRecord, "state" | "targets"> & SignsOfWork,
  clock: Clock,
): EngineWait {
  const nowMs = clock.nowMs();
  let oldestMs = Number.NaN;
  let unresponsiveMs = Number.NaN;
  for (const { load, signals } of targets) {
    const { oldestMs: oldest, oldestStreamMs, longestTokens } = load.waiting();
    if (Number.isNaN(oldest)) continue;
    oldestMs = Number.isNaN(oldestMs) ? nowMs - oldest : Math.max(oldestMs, nowMs - oldest);
    const isRead = signals.ageMs() <= readWithinMs;
    const sinceMs = isRead && signals.running === 0 ? oldest : oldestStreamMs;
    const quietMs = nowMs - Math.max(sinceMs, lastAnswerMs, lastChangeMs);
    const allowedMs = (isRead ? quietReadMs : quietUnreadMs) + promptMargin * longestTokens * tokenGraceMs;
    if (state === "up" && quietMs > allowedMs)
      unresponsiveMs = Number.isNaN(unresponsiveMs) ? quietMs : Math.max(unresponsiveMs, quietMs);
  }
  return { oldestMs, unresponsiveMs };
}

/** On the monotonic clock; -Infinity before the first. */
interface SignsOfWork {
  /** When it last answered a request or generated tokens. */
  readonly lastAnswerMs: number;
  /** When a number in its metrics last changed. */
  readonly lastChangeMs: number;
}
