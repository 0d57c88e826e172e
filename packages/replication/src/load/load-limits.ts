/** Bounds and times of the load plane. Times in milliseconds on the monotonic clock. */
export interface LoadLimits {
  /** Routers whose gauges are kept, dead ones included while they are remembered. */
  readonly maxOrigins: number;
  /** Targets of one router that have load at a time. */
  readonly maxTargets: number;
  /** At least so long lies between two frames that tell of changes; the first change after it goes out at once. */
  readonly coalesceMs: number;
  /** Frames of changes a second at most, those to all peers together: with many peers, more lies between two. */
  readonly maxFramesPerS: number;
  readonly heartbeatMs: number;
  /** A router that was not heard for so long counts as unknown. */
  readonly leaseMs: number;
  readonly sweepMs: number;
  /** What an unknown router last had is remembered for so long. */
  readonly rememberMs: number;
}

export const defaultLoadLimits: LoadLimits = {
  maxOrigins: 1_024,
  maxTargets: 4_096,
  coalesceMs: 10,
  maxFramesPerS: 1_200,
  heartbeatMs: 500,
  leaseMs: 1_500,
  sweepMs: 250,
  rememberMs: 600_000,
};
