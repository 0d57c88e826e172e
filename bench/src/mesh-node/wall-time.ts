import type { Clock } from "@espalier/common";

/** Wall-clock time with a fraction, so that processes of one machine can compare what they measure. */
export interface WallTime {
  /** Milliseconds since the Unix epoch; as exact between two processes of a machine as `calibrationMs` allowed. */
  nowMs(): number;
}

/** The wall clock counts whole milliseconds: where it steps within this time tells how far the monotonic one is off. */
const calibrationMs = 5;
/** Ends the calibration where the monotonic clock stands still. */
const maxSamples = 1_000_000;

/** Occupies the process for a few milliseconds. */
export function createWallTime(clock: Clock): WallTime {
  const startMs = clock.nowMs();
  let offsetMs = Number.NEGATIVE_INFINITY;
  for (let sample = 0; sample < maxSamples && clock.nowMs() - startMs < calibrationMs; sample++) {
    offsetMs = Math.max(offsetMs, clock.wallMs() - clock.nowMs());
  }
  return { nowMs: () => clock.nowMs() + offsetMs };
}
