import type { Clock, RouterId } from "@espalier/common";
import type { PrefixIndex } from "@espalier/prefix-index";
import type { FoldMeters } from "./fold-meters.ts";
import type { IndexSink } from "./index-sink.ts";

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

/** Bytes of something that all targets of a fold share a bound for. */
export interface SharedBytes {
  total: number;
}

/** What the targets of a fold share. */
export interface FoldContext {
  readonly index: PrefixIndex;
  readonly sink: IndexSink;
  readonly limits: FoldLimits;
  readonly meters: FoldMeters;
  readonly clock: Clock;
  readonly self: RouterId;
  /** Bytes of records that wait or are kept. */
  readonly waiting: SharedBytes;
  /** Bytes of what changed since kept states. */
  readonly kept: SharedBytes;
}
