import { type Clock, counterBy, counterOf, type Meter, type RouterId } from "@espalier/core";
import type { PrefixIndex } from "@espalier/prefix-index";
import type { ReloadReason } from "./fact-fold.ts";
import type { IndexSink } from "./index-sink.ts";

/** The bounds of a fold. Beyond each of them something is abandoned that a snapshot or the next checkpoint restores. */
export type FoldLimits = Readonly<typeof defaultFoldLimits>;

export const defaultFoldLimits = {
  /** Records of one target that wait for earlier ones, or are kept over a gap that may still be filled. */
  maxWaitingRecordsPerTarget: 16_384,
  /** Bytes of these records, with their overhead. */
  maxWaitingBytesPerTarget: 4 * 1_024 * 1_024,
  /** Bytes of the waiting records of all targets. */
  maxWaitingBytes: 64 * 1_024 * 1_024,
  /** Declared gaps of one target that no checkpoint has closed. */
  maxGapsPerTarget: 256,
  /** Bytes of all targets' changes since a gap, kept to go back to it. */
  maxKeptBytes: 64 * 1_024 * 1_024,
  /** How long a target waits for messages that are not declared lost, before its state is asked for. */
  maxHoleMs: 2_000,
};

/** Bytes under a bound that all targets of a fold share. */
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

/** Why an entry of a journal was ignored. */
type IgnoredReason = "no-slot" | "unknown-feed" | "old-epoch" | "limit";

/**
 * A hint at a divergence that the next checkpoint will show. `unknown`: a removed block was not there. `ambiguous`:
 * several blocks match a removal. `cut`: a checkpoint differs from a state that ranks before it.
 */
type HintKind = "unknown" | "ambiguous" | "cut";

/** Counters of a fold. */
export type FoldMeters = ReturnType<typeof createFoldMeters>;

export function createFoldMeters(meter: Meter) {
  return {
    ignored: counterBy<IgnoredReason>(
      meter,
      "reason",
      "espalier_fold_ignored_entries_total",
      "Rejected journal entries, by reason.",
    ),
    hint: counterBy<HintKind>(
      meter,
      "kind",
      "espalier_fold_divergence_hints_total",
      "Divergences between a target's facts and its journal, by kind.",
    ),
    reload: counterBy<ReloadReason>(
      meter,
      "reason",
      "espalier_fold_reloads_total",
      "Targets whose facts were fetched from another router, by reason.",
    ),
    refold: counterOf(meter, "espalier_fold_refolds_total", "Targets whose facts were rebuilt after a late gap fill."),
    /** A gap was closed for lack of capacity, before it was filled or checkpointed. */
    gapGivenUp: counterOf(
      meter,
      "espalier_fold_gaps_abandoned_total",
      "Gaps in targets' facts that were closed for lack of capacity.",
    ),
  };
}
