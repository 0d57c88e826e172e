import type { PrefixMatches } from "@espalier/prefix-index";

/** What one router guesses of one target, on its way to the others. */
export interface OwnPlacement {
  readonly router: number;
  readonly target: number;
  readonly kind: "place" | "confirm" | "refute";
  /** Chain hashes, two words each, low word first; not changed any more. */
  readonly chain: Uint32Array;
  /** At least 1. Of a refutation, up to the block that the engine does not hold, that one included. */
  readonly blockCount: number;
  readonly atMs: number;
  /** 0 for a refutation. */
  readonly ttlMs: number;
}

/** What has arrived is dropped from the list when it is this long and more than half of the list. */
const droppedAtOnce = 256;

/** Stands for the first block of what is forgotten: no word is negative. */
const forgotten = -1;

/**
 * What one router has guessed and the others have not heard yet, in the order of its guesses: they come after everything
 * that is in the shared copy. There are few, so they are looked through.
 */
export class PendingPlacements {
  readonly #placements: OwnPlacement[] = [];
  /** Low word of the first block of each; almost all others differ from a prompt there. */
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

  /** What was guessed of a target up to now does not hold for this router. */
  forget(target: number): void {
    for (let index = this.#first; index < this.#lows.length; index++) {
      if (this.#placements[index]!.target === target) this.#lows[index] = forgotten;
    }
  }

  /**
   * Adds them to what the shared copy says of a chain. News of an engine takes as long as a guess at least, so none of
   * them is from before a life that is known of.
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

/** How many blocks two chains begin with alike: a chain hash stands for its whole prefix. */
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
