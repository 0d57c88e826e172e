import type { Meter } from "@espalier/common";
import type { ReloadReason } from "./fact-fold.ts";

/** Why an entry of a journal was not taken. */
const ignoredReasons = ["no-slot", "unknown-feed", "old-life", "malformed", "limit"] as const;
type IgnoredReason = (typeof ignoredReasons)[number];

/**
 * What hints at a divergence that the next cut will show. `unknown`: a removed block was not there. `ambiguous`: several
 * blocks fit what was removed. `cut`: a cut says something else than a state that ranks before it.
 */
const hintKinds = ["unknown", "ambiguous", "cut"] as const;
type HintKind = (typeof hintKinds)[number];

const reloadReasons: readonly ReloadReason[] = ["behind-cut", "digest-mismatch", "overflow", "unknown-base"];

/** What a fold counts. */
export interface FoldMeters {
  ignored(reason: IgnoredReason, entries?: number): void;
  hint(kind: HintKind, blocks: number): void;
  reload(reason: ReloadReason): void;
  refold(): void;
  /** A gap was closed for want of room, before it was filled or cut. */
  gapGivenUp(): void;
}

export function createFoldMeters(meter: Meter): FoldMeters {
  const ignored = meter.counter({
    name: "espalier_fold_ignored_entries_total",
    help: "Entries of journals that were not folded, by reason.",
    labels: ["reason"],
  });
  const hints = meter.counter({
    name: "espalier_fold_divergence_hints_total",
    help: "Signs that a target's facts differ from what a journal's writer saw, by kind.",
    labels: ["kind"],
  });
  const reloads = meter.counter({
    name: "espalier_fold_reloads_total",
    help: "Times that a target's facts had to be fetched from another router, by reason.",
    labels: ["reason"],
  });
  const refolds = meter.counter({
    name: "espalier_fold_refolds_total",
    help: "Times that a gap in a target's facts was filled late and they were folded again.",
  });
  const givenUp = meter.counter({
    name: "espalier_fold_gaps_given_up_total",
    help: "Gaps in targets' facts that were closed for want of room.",
  });
  const byReason = new Map(ignoredReasons.map((reason) => [reason, ignored.series(reason)]));
  const byKind = new Map(hintKinds.map((kind) => [kind, hints.series(kind)]));
  const byReload = new Map(reloadReasons.map((reason) => [reason, reloads.series(reason)]));
  const refoldSeries = refolds.series();
  const givenUpSeries = givenUp.series();
  return {
    ignored: (reason, entries = 1) => byReason.get(reason)?.add(entries),
    hint: (kind, blocks) => byKind.get(kind)?.add(blocks),
    reload: (reason) => byReload.get(reason)?.add(),
    refold: () => refoldSeries.add(),
    gapGivenUp: () => givenUpSeries.add(),
  };
}
