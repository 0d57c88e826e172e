import type { Clock, RouterId } from "@espalier/common";
import type { PrefixIndex } from "@espalier/prefix-index";
import type { FoldLimits } from "./fold-limits.ts";
import type { FoldMeters } from "./fold-meters.ts";
import type { IndexSink } from "./index-sink.ts";

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
