import type { Clock } from "@espalier/core";

/** Wall-clock time with a fraction, so that processes on one machine can compare their measurements. */
export interface WallTime {
  /** Milliseconds since the Unix epoch; between two processes on a machine as accurate as `calibrationMs` allows. */
  nowMs(): number;
}

/**
 * The wall clock counts whole milliseconds. The moment it steps within this time gives the monotonic clock's offset.
 */
const calibrationMs = 5;
/** Ends the calibration if the monotonic clock does not advance. */
const maxSamples = 1_000_000;

/** Keeps the process busy for a few milliseconds. */
export function createWallTime(clock: Clock): WallTime {
  const startMs = clock.nowMs();
  let offsetMs = Number.NEGATIVE_INFINITY;
  for (let sample = 0; sample < maxSamples && clock.nowMs() - startMs < calibrationMs; sample++) {
    offsetMs = Math.max(offsetMs, clock.wallMs() - clock.nowMs());
  }
  return { nowMs: () => clock.nowMs() + offsetMs };
}
