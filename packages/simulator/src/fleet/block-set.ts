/** Blocks by their chain hashes: for readers that have missed something, which is rare, so plain. */
export class BlockSet {
  readonly #hashes = new Set<bigint>();

  get size(): number {
    return this.#hashes.size;
  }

  /** @returns whether it was not in the set */
  add(words: Uint32Array, block: number): boolean {
    const before = this.#hashes.size;
    this.#hashes.add(hashAt(words, block));
    return this.#hashes.size > before;
  }

  /** @returns whether it was in the set */
  delete(words: Uint32Array, block: number): boolean {
    return this.#hashes.delete(hashAt(words, block));
  }

  clear(): void {
    this.#hashes.clear();
  }

  /** Two words a block, low word first. */
  toWords(): Uint32Array {
    return new Uint32Array(BigUint64Array.from(this.#hashes).buffer);
  }
}

function hashAt(words: Uint32Array, block: number): bigint {
  return (BigInt(words[2 * block + 1]!) << 32n) | BigInt(words[2 * block]!);
}
