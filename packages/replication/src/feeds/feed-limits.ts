/** Bounds and times of a feed reader. */
export interface FeedReaderLimits {
  /** Records that a backup keeps, to take over without loss. */
  readonly maxKeptRecords: number;
  /** Bytes of them, their overhead included. */
  readonly maxKeptBytes: number;
  /** A feed is cut again after as many blocks stored and removed as it holds, but not before this many. */
  readonly minCutOps: number;
  /** A feed that has moved is cut after this time at the latest. */
  readonly maxCutAgeMs: number;
  /** How long a gap is left open for somebody who may fill it, before a cut closes it. */
  readonly openGapMs: number;
  /** How long an owner waits to find out whether the life that others know is the one it reads. */
  readonly lifeWaitMs: number;
}

export const defaultFeedLimits: FeedReaderLimits = {
  maxKeptRecords: 16_384,
  maxKeptBytes: 4 * 1_024 * 1_024,
  minCutOps: 4_096,
  maxCutAgeMs: 60_000,
  openGapMs: 10_000,
  lifeWaitMs: 10_000,
};

/** @throws RangeError for limits that are no positive numbers */
export function checkFeedLimits(limits: Partial<FeedReaderLimits> = {}): FeedReaderLimits {
  const checked = { ...defaultFeedLimits, ...limits };
  for (const [name, limit] of Object.entries(checked)) {
    if (!(limit > 0)) throw new RangeError(`${name} is ${limit}`);
  }
  return checked;
}
