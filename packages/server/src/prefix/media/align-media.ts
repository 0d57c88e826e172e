import type { MediaLayout, UnknownPart } from "./media-layout.ts";
import { type MediaRow, runsOf } from "./media-rows.ts";
import type { MediaSighting } from "./media-sightings.ts";

/**
 * What replaces the first unknown part of a layout, if a sighting is of this prompt: the tokens around the part are the
 * same, and the part's end has one possible place.
 *
 * @param blockStart position of the sighting's first block in the prompt
 */
export function alignMedia(
  layout: MediaLayout,
  unknown: UnknownPart,
  blockStart: number,
  sighting: MediaSighting,
): MediaRow | undefined {
  const { ranges, tokens: seen, engineBlockSize } = sighting;
  const range = ranges.find(({ start }) => blockStart + start >= unknown.from && blockStart + start < unknown.to);
  if (!range || !isSame(layout, blockStart, seen, 0, range.start)) return undefined;
  const { identifier, start, lastBlock } = range;
  const replaced = blockStart + start;
  const next = Math.min(...ranges.filter((other) => other.start > start).map((other) => other.start));
  const last = Math.min(next, seen.length, (lastBlock + 1) * engineBlockSize);
  const ends: { readonly end: number; readonly isLikely: boolean }[] = [];
  for (let end = Math.max(start, lastBlock * engineBlockSize) + 1; end <= last; end++) {
    const reached = replaced + 1 + Math.min(next, seen.length) - end;
    if (!continues(layout, unknown, replaced + 1, { seen, end, next })) continue;
    // Most engines write a placeholder as the template does, and more of them.
    ends.push({ end, isLikely: next < seen.length && tokenAt(layout, reached) === seen[next] });
  }
  const likely = ends.filter(({ isLikely }) => isLikely);
  const [found, ...others] = likely.length > 0 ? likely : ends;
  if (!found || others.length > 0) return undefined;
  return { identifier, back: unknown.to - replaced, engineBlockSize, runs: runsOf(seen, start, found.end) };
}

/** Whether the prompt goes on from `at` as the engine's tokens do after `end`: up to the next part, or their end. */
function continues(
  layout: MediaLayout,
  unknown: UnknownPart,
  at: number,
  { seen, end, next }: { readonly seen: Uint32Array; readonly end: number; readonly next: number },
): boolean {
  const until = Math.min(next, seen.length);
  const reached = at + until - end;
  const zone = unknown.next;
  if (next < seen.length ? !zone || reached < zone.from || reached >= zone.to : until === end) return false;
  if (zone && reached > zone.to) return false;
  return isSame(layout, at, seen, end, until);
}

/**
 * Whether the prompt's tokens from a position on are those between two indices of `seen`. Those before the layout's own
 * are not compared: only their digests are known.
 */
function isSame(layout: MediaLayout, position: number, seen: Uint32Array, from: number, to: number): boolean {
  const first = from + Math.max(0, layout.start - position);
  for (let at = first; at < to; at++) if (tokenAt(layout, position + at - from) !== seen[at]) return false;
  return true;
}

/** The token at a position from the layout's beginning on. */
const tokenAt = ({ tokens, start }: MediaLayout, position: number): number | undefined => tokens[position - start];
