import type { BlockDigests, Hash64 } from "@espalier/core";
import type { MediaPrompt } from "@espalier/tokenizer";
import { type MediaRow, tokensOfRuns } from "./media-rows.ts";

/** A prompt with the tokens that engines have in place of its known images, audio and videos. */
export interface MediaLayout {
  readonly media: MediaPrompt;
  /** The tokens from position `start` on; after the first unknown part they are those of the template. */
  readonly tokens: Uint32Array;
  readonly start: number;
  readonly ranges: readonly PlacedMedia[];
  /** The first part that is not known; undefined for none. */
  readonly unknown: UnknownPart | undefined;
  /** Position up to which the tokens are the engine's. */
  readonly exactTokens: number;
  /** Tokens per block of the engines; undefined while no part is known. */
  readonly engineBlockSize: number | undefined;
}

/** Where a known part is. */
interface PlacedMedia {
  readonly hash: string;
  readonly identifier: string;
  readonly start: number;
  readonly end: number;
}

/** A part of which the engine replaces a token between two positions. */
export interface UnknownPart extends Zone {
  /** Its number among the parts of the prompt. */
  readonly part: number;
  /** Where the next part is in the template's tokens; undefined for none. */
  readonly next: Zone | undefined;
}

interface Zone {
  readonly from: number;
  readonly to: number;
}

/** Puts known parts into a prompt, up to the first that is not known. */
export function layOutMedia(
  media: MediaPrompt,
  blockSize: number,
  rowOf: (hash: string) => MediaRow | undefined,
): MediaLayout {
  const { before, segments, parts } = media;
  const start = (before.contents.length / 2) * blockSize;
  const pieces: Uint32Array[] = [before.leftover];
  const ranges: PlacedMedia[] = [];
  let at = start + before.leftover.length;
  let unknown: UnknownPart | undefined;
  let engineBlockSize: number | undefined;
  for (const [index, segment] of segments.entries()) {
    const part = parts[index];
    const row = part?.hash !== undefined && !unknown ? rowOf(part.hash) : undefined;
    const replaced = row ? segment.length - row.back : -1;
    const isUsable = row && part && row.back <= part.width && replaced >= 0;
    if (
      row &&
      part?.hash !== undefined &&
      isUsable &&
      (engineBlockSize ?? row.engineBlockSize) === row.engineBlockSize
    ) {
      const placed = tokensOfRuns(row.runs);
      engineBlockSize = row.engineBlockSize;
      pieces.push(segment.subarray(0, replaced), placed, segment.subarray(replaced + 1));
      const from = at + replaced;
      ranges.push({ hash: part.hash, identifier: row.identifier, start: from, end: from + placed.length });
      at += segment.length - 1 + placed.length;
      continue;
    }
    pieces.push(segment);
    if (part && !unknown) {
      const after = segments[index + 1];
      const nextPart = parts[index + 1];
      const to = at + segment.length;
      const next = after && nextPart ? zoneBefore(to + after.length, nextPart.width, to) : undefined;
      unknown = { part: index, ...zoneBefore(to, part.width, at), next };
    }
    at += segment.length;
  }
  const exactTokens = unknown?.from ?? at;
  return { media, tokens: joined(pieces), start, ranges, unknown, exactTokens, engineBlockSize };
}

const zoneBefore = (to: number, width: number, least: number): Zone => ({ from: Math.max(least, to - width), to });

function joined(pieces: readonly Uint32Array[]): Uint32Array {
  const all = new Uint32Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/**
 * Digests of the router blocks of a layout's first `tokens` tokens. As in a ledger, each block has the keys of the
 * engine's block that it is in.
 */
export function layoutContents(
  { media, tokens, ranges }: MediaLayout,
  until: number,
  sizes: { readonly blockSize: number; readonly engineBlockSize: number },
  digests: BlockDigests,
): Uint32Array {
  const { blockSize, engineBlockSize } = sizes;
  const known = media.before.contents;
  const blocks = Math.floor(until / blockSize);
  const contents = new Uint32Array(2 * blocks);
  contents.set(known.length > contents.length ? known.subarray(0, contents.length) : known);
  const added = blocks - known.length / 2;
  if (added > 0) digests.contents(tokens, 0, added * blockSize, blockSize, contents.subarray(known.length));
  const keys = new Map<number, string>();
  for (const { identifier, start, end } of ranges) {
    for (let block = Math.floor(start / engineBlockSize); block * engineBlockSize < end; block++) {
      const key = `${identifier}@${start - block * engineBlockSize}`;
      keys.set(block, `${keys.get(block) ?? ""}${key.length}:${key}`);
    }
  }
  const parts = engineBlockSize / blockSize;
  for (const [block, key] of keys) {
    for (let part = block * parts; part < Math.min(blocks, (block + 1) * parts); part++) {
      digests.keyed(contents, part, key);
    }
  }
  return contents;
}

/** The chain hash of a prompt's first `contents.length / 2` blocks. */
export function chainEnd(root: Hash64, contents: Uint32Array, digests: BlockDigests): Hash64 {
  if (contents.length === 0) return root;
  const chain = new Uint32Array(contents.length);
  digests.mix(root, contents, 0, contents.length / 2, chain);
  return { low: chain.at(-2)!, high: chain.at(-1)! };
}
