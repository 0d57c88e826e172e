import type { PrefixMatches } from "@espalier/prefix-index";

/** A placement of one router at one target, in transit to the others. */
export interface OwnPlacement {
  readonly router: number;
  readonly target: number;
  readonly kind: "place" | "confirm" | "refute";
  /** Chain hashes, two words each, low word first; never modified again. */
  readonly chain: Uint32Array;
  /** At least 1. For a refutation: up to and including the first block that the engine lacks. */
  readonly blockCount: number;
  readonly atMs: number;
  /** 0 for a refutation. */
  readonly ttlMs: number;
}

/** Arrived entries are dropped once there are this many and they are more than half of the list. */
const droppedAtOnce = 256;

/** Replaces the first word of a forgotten placement: no word is negative. */
const forgotten = -1;

/**
 * Placements of one router that have not reached the others, in order. They are newer than everything in the shared copy.
 * There are few, so they are searched linearly.
 */
export class PendingPlacements {
  readonly #placements: OwnPlacement[] = [];
  /** Low word of each placement's first block. Almost all placements differ from a prompt there. */
  readonly #lows: number[] = [];
  #first = 0;

  get size(): number {
    return this.#placements.length - this.#first;
  }

  add(placement: OwnPlacement): void {
    this.#placements.push(placement);
    this.#lows.push(placement.chain[0]!);
  }

  /** The oldest one has arrived at the others. */
  arrived(): void {
    this.#first++;
    if (this.#first < droppedAtOnce || this.#first * 2 < this.#placements.length) return;
    this.#placements.splice(0, this.#first);
    this.#lows.splice(0, this.#first);
    this.#first = 0;
  }

  /** Discards the placements at a target for this router. */
  forget(target: number): void {
    for (let index = this.#first; index < this.#lows.length; index++) {
      if (this.#placements[index]!.target === target) this.#lows[index] = forgotten;
    }
  }

  /**
   * Adds them to the matches from the shared copy. Engine updates take at least as long as placements, so none of these
   * is older than the known epoch of its engine.
   */
  apply(words: Uint32Array, blockCount: number, nowMs: number, out: PrefixMatches): void {
    if (blockCount <= 0) return;
    const low = words[0]!;
    for (let index = this.#first; index < this.#lows.length; index++) {
      if (this.#lows[index] !== low) continue;
      const placement = this.#placements[index]!;
      const { target, kind, atMs } = placement;
      const depth = commonBlocks(placement, words, blockCount);
      if (kind === "refute") {
        if (depth === placement.blockCount) lower(out, target, depth - 1);
      } else if (depth > 0 && atMs + placement.ttlMs > nowMs) {
        raise(out, target, depth, nowMs - atMs);
        if (kind === "confirm") out.confirmedBlocks[target] = Math.max(out.confirmedBlocks[target]!, depth);
      }
    }
  }
}

function raise(out: PrefixMatches, target: number, depth: number, ageMs: number): void {
  if (out.isListed[target] === 0) {
    out.isListed[target] = 1;
    out.targets[out.count++] = target;
  }
  const placed = out.placedBlocks[target]!;
  if (depth < placed) return;
  out.placementAgeMs[target] = depth > placed ? ageMs : Math.min(ageMs, out.placementAgeMs[target]!);
  out.placedBlocks[target] = depth;
}

function lower(out: PrefixMatches, target: number, depth: number): void {
  out.placedBlocks[target] = Math.min(out.placedBlocks[target]!, depth);
  out.confirmedBlocks[target] = Math.min(out.confirmedBlocks[target]!, depth);
  if (out.placedBlocks[target] === 0) out.placementAgeMs[target] = 0;
}

/** Number of blocks in the common prefix of two chains. A chain hash identifies its whole prefix. */
function commonBlocks(
  one: { readonly chain: Uint32Array; readonly blockCount: number },
  other: Uint32Array,
  otherBlocks: number,
): number {
  const { chain } = one;
  let common = 0;
  let most = Math.min(one.blockCount, otherBlocks);
  // The whole of the shorter one is the usual case.
  let probe = most;
  while (common < most) {
    const at = probe * 2 - 2;
    if (chain[at] === other[at] && chain[at + 1] === other[at + 1]) common = probe;
    else most = probe - 1;
    probe = (common + most + 1) >>> 1;
  }
  return common;
}
