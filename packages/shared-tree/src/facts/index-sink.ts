import { type FactKind, type PrefixIndex, type Tier, tier } from "@espalier/prefix-index";
import type { FactOpsSink } from "./fact-ops.ts";
import type { FoldMeters } from "./fold-context.ts";
import type { KeptState } from "./kept-state.ts";

/** Applies ops to the facts of an index, one target at a time. */
export class IndexSink implements FactOpsSink {
  /** Whether the target was cleared since `aim`. */
  wasCleared = false;
  readonly #index: PrefixIndex;
  readonly #meters: FoldMeters;
  /** Targets that may have holes, or are walked. */
  readonly #withHoles = new Set<number>();
  readonly #orphan = { index: 0, depth: 0 };
  #slot = 0;
  /** Records the changes. */
  #kept: KeptState | undefined;
  #found = new Uint32Array(512);

  constructor(index: PrefixIndex, meters: FoldMeters) {
    this.#index = index;
    this.#meters = meters;
  }

  /**
   * Sets the target of the ops that follow.
   *
   * @param kept gets the changes
   */
  aim(slot: number, kept?: KeptState): void {
    this.wasCleared = false;
    this.#slot = slot;
    this.#kept = kept?.isVoid ? undefined : kept;
  }

  mayHaveHoles(slot: number): boolean {
    return this.#withHoles.has(slot);
  }

  /** Holes of a target, or the fact that they are unknown, entered the index by another way. */
  noteHoles(slot: number): void {
    this.#withHoles.add(slot);
  }

  /** Voids all that a target holds. */
  void(slot: number): void {
    this.#index.clearFacts(slot);
    this.#withHoles.delete(slot);
  }

  stored(kind: FactKind, words: Uint32Array, from: number, to: number): void {
    const kept = this.#kept;
    if (!kept) {
      this.#index.storeFacts(this.#slot, kind, words, from, to);
      return;
    }
    for (let block = from; block < to; block++) {
      const stored = this.#index.storeFacts(this.#slot, kind, words, block, block + 1);
      if (stored > 0) kept.changes.stored(kind, words, block);
    }
  }

  removed(kind: FactKind, words: Uint32Array, from: number, to: number): void {
    const removed = this.#remove(kind, words, from, to);
    if (removed < to - from) this.#meters.hint("unknown", to - from - removed);
  }

  removedLow(kind: FactKind, lows: Uint32Array, from: number, to: number): void {
    const index = this.#index;
    if (this.#found.length < 2 * (to - from)) this.#found = new Uint32Array(2 * (to - from));
    const words = this.#found;
    let count = 0;
    let ambiguous = 0;
    for (let at = from; at < to; at++) {
      const low = lows[at]!;
      const found = index.findByLow(this.#slot, kind, low);
      if (found === 1) {
        words[2 * count] = low;
        words[2 * count + 1] = index.foundHigh;
        count++;
      } else if (found === 2) ambiguous++;
    }
    const removed = this.#remove(kind, words, 0, count);
    if (ambiguous > 0) this.#meters.hint("ambiguous", ambiguous);
    if (removed + ambiguous < to - from) this.#meters.hint("unknown", to - from - ambiguous - removed);
  }

  orphaned(inTier: Tier, words: Uint32Array, at: number, depthBlocks: number): void {
    this.#orphan.index = at;
    this.#orphan.depth = depthBlocks;
    if (inTier === tier.gpu) this.#withHoles.add(this.#slot);
    const removed = this.#index.removeOrphan(this.#slot, inTier, words, this.#orphan);
    if (removed) this.#kept?.changes.removed(inTier, words, at);
  }

  holeGone(inTier: Tier, words: Uint32Array, at: number): void {
    if (inTier !== tier.gpu) return;
    this.#index.forgetOrphan(this.#slot, words, at);
    this.#kept?.holeGone();
  }

  cleared(): void {
    this.wasCleared = true;
    this.void(this.#slot);
    this.#index.placements.clear(this.#slot);
    this.#kept?.void();
    this.#kept = undefined;
  }

  /** @returns how many the target held */
  #remove(kind: FactKind, words: Uint32Array, from: number, to: number): number {
    const kept = this.#kept;
    if (!kept) return this.#index.removeFacts(this.#slot, kind, words, from, to);
    let removed = 0;
    for (let block = from; block < to; block++) {
      if (this.#index.removeFacts(this.#slot, kind, words, block, block + 1) === 0) continue;
      kept.changes.removed(kind, words, block);
      removed++;
    }
    return removed;
  }
}
