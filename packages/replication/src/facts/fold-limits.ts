/** The bounds of a fold. Beyond each of them something is given up that a snapshot or the next cut brings back. */
export interface FoldLimits {
  /** Records of one target that wait for earlier ones, or are kept over a gap that may still be filled. */
  readonly maxWaitingRecordsPerTarget: number;
  /** Bytes of them, their overhead included. */
  readonly maxWaitingBytesPerTarget: number;
  /** Bytes of the waiting records of all targets. */
  readonly maxWaitingBytes: number;
  /** Declared gaps of one target that no cut has closed. */
  readonly maxGapsPerTarget: number;
  /** Bytes of what has changed in targets since a gap, to go back to it, all together. */
  readonly maxKeptBytes: number;
  /** How long a target waits for messages that nobody says are lost, before its state is asked for. */
  readonly maxHoleMs: number;
}

export const defaultFoldLimits: FoldLimits = {
  maxWaitingRecordsPerTarget: 16_384,
  maxWaitingBytesPerTarget: 4 * 1_024 * 1_024,
  maxWaitingBytes: 64 * 1_024 * 1_024,
  maxGapsPerTarget: 256,
  maxKeptBytes: 64 * 1_024 * 1_024,
  maxHoleMs: 2_000,
};
