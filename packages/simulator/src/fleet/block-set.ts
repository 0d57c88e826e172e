import type { Tier } from "@espalier/prefix-index";
import type { BlockMove } from "./block-moves.ts";

/** Blocks by their chain hashes, tier by tier: for readers that have missed something, which is rare, so plain. */
export class BlockSet {
  readonly #tiers = new Map<Tier, Set<bigint>>();

  size(inTier: Tier): number {
    return this.#tiers.get(inTier)?.size ?? 0;
  }

  /** @returns whether that changed anything */
  apply({ tier, isStored }: BlockMove, words: Uint32Array, block: number): boolean {
    const hashes = this.#tiers.get(tier) ?? new Set();
    this.#tiers.set(tier, hashes);
    const before = hashes.size;
    if (isStored) hashes.add(hashAt(words, block));
    else hashes.delete(hashAt(words, block));
    return hashes.size !== before;
  }

  clear(): void {
    this.#tiers.clear();
  }

  /** Gives the blocks of each tier that has any, two words a block, low word first. */
  forEachTier(visit: (tier: Tier, words: Uint32Array) => void): void {
    for (const [tier, hashes] of this.#tiers) {
      if (hashes.size > 0) visit(tier, new Uint32Array(BigUint64Array.from(hashes).buffer));
    }
  }
}

function hashAt(words: Uint32Array, block: number): bigint {
  return (BigInt(words[2 * block + 1]!) << 32n) | BigInt(words[2 * block]!);
}
