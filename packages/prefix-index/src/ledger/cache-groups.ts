import { attention } from "../engine-events.ts";

/** Bound of groups; models with more are not supported. */
export const maxCacheGroups = 256;
/** Bound of groups without full attention: one bit each in a word. Further ones are ignored. */
export const maxPartialGroups = 32;

/** Tokens of a chunk of local attention in Llama 4 (`attention_chunk_size`). */
export const defaultChunkTokens = 8_192;

/** A cache group that needs only a part of a prefix. */
export interface PartialGroup {
  readonly attention: number;
  /** Its bit in the masks of `GroupBlocks`. */
  readonly bit: number;
  /** Tokens per block of the group; 0 while unknown. */
  readonly blockSize: number;
  /** Tokens of its window or chunk; 0 for a state. */
  readonly span: number;
}

/**
 * The KV-cache groups of a hybrid model. Removals contain only the group's number, so this remembers what was stored
 * with it.
 */
export class CacheGroups {
  readonly #chunkTokens: number;
  /** By the group's number; undefined for one of full attention, and for one that is ignored. */
  readonly #partial: (PartialGroup | undefined)[] = [];
  readonly #isFull = new Uint8Array(maxCacheGroups);
  readonly #isKnown = new Uint8Array(maxCacheGroups);
  /** The groups that need only a part of a prefix. */
  readonly partial: PartialGroup[] = [];
  fullGroups = 0;

  /** @param chunkTokens tokens of a chunk of local attention, which events do not give */
  constructor(chunkTokens: number) {
    this.#chunkTokens = chunkTokens;
  }

  /** Forgets all groups, for a new engine process. */
  clear(): void {
    this.#partial.length = 0;
    this.#isFull.fill(0);
    this.#isKnown.fill(0);
    this.partial.length = 0;
    this.fullGroups = 0;
  }

  /** Records what a stored event says. Ignores groups out of bounds. */
  note(group: number, kind: number, blockSize: number, window: number): void {
    if (group < 0 || group >= maxCacheGroups) return;
    const isFull = kind === attention.full;
    if (this.#isKnown[group] === 1 && (this.#isFull[group] === 1) === isFull) return;
    if (isFull) this.fullGroups++;
    else if (this.#isFull[group] === 1) this.fullGroups--;
    this.#isKnown[group] = 1;
    this.#isFull[group] = isFull ? 1 : 0;
    this.#partial[group] = undefined;
    if (isFull || kind === attention.other || this.partial.length === maxPartialGroups) return;
    const span = kind === attention.window ? window : kind === attention.chunk ? this.#chunkTokens : 0;
    if (kind === attention.window && span === 0) return;
    const known = { attention: kind, bit: 1 << this.partial.length, blockSize, span };
    this.#partial[group] = known;
    this.partial.push(known);
  }

  /** The group with this number if it needs only a part of a prefix, and what it needs is known. */
  partialOf(group: number): PartialGroup | undefined {
    return this.#partial[group];
  }

  /** Whether a removal of this group (-1 if not given) removes what full attention has stored. */
  countsForRemoval(group: number): boolean {
    if (group < 0) return true;
    const isKnown = group < maxCacheGroups && this.#isKnown[group] === 1;
    return isKnown ? this.#isFull[group] === 1 : this.fullGroups === 0;
  }
}
