const minBlocks = 1_024;

/**
 * Targets waiting at blocks of a chain until a walk gets there. It keeps them in order without sorting, and must be empty
 * before the next walk.
 */
export class TargetsByBlock {
  /** By block: the last target added there plus one; 0 for none. */
  #last = new Uint16Array(minBlocks);
  /** By target: the one added before it at the same block, plus one. */
  readonly #previous: Uint16Array;
  /** One bit per block with targets. */
  #bits = new Uint32Array(minBlocks / 32);

  constructor(maxTargets: number) {
    this.#previous = new Uint16Array(maxTargets);
  }

  add(target: number, block: number): void {
    if (block >= this.#last.length) this.#grow(block);
    this.#previous[target] = this.#last[block]!;
    this.#last[block] = target + 1;
    this.#bits[block >>> 5]! |= 1 << (block & 31);
  }

  /** Moves the targets at a block to the end of a list. @returns how many the list has then */
  take(block: number, list: Int32Array, count: number): number {
    let end = count;
    for (let link = this.#last[block]!; link !== 0; link = this.#previous[link - 1]!) list[end++] = link - 1;
    this.#last[block] = 0;
    this.#bits[block >>> 5]! &= ~(1 << (block & 31));
    return end;
  }

  /** The first block with targets from this one on, which had some; -1 if there is none. */
  firstFrom(block: number): number {
    let word = block >>> 5;
    let bits = this.#bits[word]! & (-1 << (block & 31));
    while (bits === 0) {
      if (++word >= this.#bits.length) return -1;
      bits = this.#bits[word]!;
    }
    return word * 32 + 31 - Math.clz32(bits & -bits);
  }

  /** The last block with targets up to this one, which had some; -1 if there is none. */
  lastUpTo(block: number): number {
    let word = block >>> 5;
    let bits = this.#bits[word]! & (-1 >>> (31 - (block & 31)));
    while (bits === 0) {
      if (--word < 0) return -1;
      bits = this.#bits[word]!;
    }
    return word * 32 + 31 - Math.clz32(bits);
  }

  #grow(block: number): void {
    const last = new Uint16Array(2 ** Math.ceil(Math.log2(block + 1)));
    last.set(this.#last);
    this.#last = last;
    const bits = new Uint32Array(last.length / 32);
    bits.set(this.#bits);
    this.#bits = bits;
  }
}
