import type { BatchMark, Life } from "../facts/life.ts";
import type { MarkHistory } from "./mark-history.ts";

/** A message with a lower number is of a later life when it was made so much later: clocks are corrected by less. */
const clockMarginUs = 1_000_000;

/** What the fold knows of a target's newest life. */
export interface KnownLifeMarks {
  readonly life: Life;
  readonly last: BatchMark | undefined;
  /**
   * The latest message of it that was known before this router connected to the engine; undefined when the life was not
   * known then. An engine that takes a connection is no earlier one than those that were known before.
   */
  readonly knownTo?: number | undefined;
  /** Whether the reader is at the end of what the engine has published. */
  readonly isLive?: boolean;
}

/**
 * Whether the engine's run that is read is the life that others know. `later`: it is another one, which began after it.
 * `older`: what was read so far is older than what others know, by the engine's clock, which may have been set back.
 * `unknown`: it does not show yet.
 */
export function compareLife(
  marks: MarkHistory,
  { life, last, knownTo, isLive = false }: KnownLifeMarks,
): "same" | "later" | "older" | "unknown" {
  const { earliest, newest } = marks;
  if (!earliest || !newest) return "unknown";
  const latest = last ?? life;
  const verdicts = [marks.compare(latest), marks.compare(life)];
  if (verdicts.includes("equal")) return "same";
  if (knownTo === undefined && isBefore(newest, latest)) return "older";
  if (verdicts.includes("different")) return "later";
  // The engine does not give what others had read, so this cannot be shown to be the same life.
  if (latest.sequence < earliest.sequence) return "later";
  // Nor does it, at its end, have a message that was there before it was connected to.
  if (knownTo !== undefined && isLive && newest.sequence < knownTo) return "later";
  const isRenumbered = [latest, life].some(
    (known) => newest.sequence < known.sequence && isBefore(known, newest, clockMarginUs),
  );
  return isRenumbered ? "later" : "unknown";
}

/** Whether the engine's clock tells that one message was made before the other. */
export function isBefore(one: BatchMark, other: BatchMark, marginUs = 0): boolean {
  if (one.timestampUs < 0 || other.timestampUs < 0) return false;
  return one.timestampUs + marginUs < other.timestampUs;
}
