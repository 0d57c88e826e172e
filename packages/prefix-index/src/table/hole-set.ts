const slotWords = 3;
const minSlots = 8;

/** A hole at this depth marks an empty slot; no chain is that long. */
const empty = 0xffff_ffff;

/**
 * The holes of one holder: blocks that it dropped although it still holds blocks behind them, each with its depth in
 * the chain (0 for a first block).
 */
export class HoleSet {
  count = 0;
  #slots = new Uint32Array(minSlots * slotWords).fill(empty);

  get byteLength(): number {
    return this.#slots.byteLength;
  }

  /** @returns false when the set already has as many as allowed, and nothing changed */
  add(low: number, high: number, { depth, maxHoles }: { depth: number; maxHoles: number }): boolean {
    const at = this.#find(low, high);
    if (this.#slots[at + 2] !== empty) return true;
    if (this.count === maxHoles) return false;
    this.#slots[at] = low;
    this.#slots[at + 1] = high;
    this.#slots[at + 2] = depth;
    this.count++;
    if (this.count * 2 * slotWords > this.#slots.length) this.#resize(this.#slots.length * 2);
    return true;
  }

  delete(low: number, high: number): boolean {
    const slots = this.#slots;
    let gap = this.#find(low, high);
    if (slots[gap + 2] === empty) return false;
    const length = slots.length;
    let next = (gap + slotWords) % length;
    for (; slots[next + 2] !== empty; next = (next + slotWords) % length) {
      const home = this.#home(slots[next]!);
      // The entry may move back if its home is not cyclically between the gap and itself.
      if ((next - home + length) % length < (next - gap + length) % length) continue;
      slots.copyWithin(gap, next, next + slotWords);
      gap = next;
    }
    slots[gap + 2] = empty;
    this.count--;
    if (length > minSlots * slotWords && this.count * 8 * slotWords < length) this.#resize(length / 2);
    return true;
  }

  /** @returns the depth of the shallowest hole on a chain of `blockCount` blocks, or -1 */
  shallowestOn(words: Uint32Array, blockCount: number): number {
    const slots = this.#slots;
    if (slots.length <= blockCount * slotWords) {
      let shallowest = blockCount;
      for (let at = 0; at < slots.length; at += slotWords) {
        const depth = slots[at + 2]!;
        if (depth >= shallowest || words[depth * 2] !== slots[at] || words[depth * 2 + 1] !== slots[at + 1]) continue;
        shallowest = depth;
      }
      return shallowest === blockCount ? -1 : shallowest;
    }
    for (let depth = 0; depth < blockCount; depth++) {
      const at = this.#find(words[depth * 2]!, words[depth * 2 + 1]!);
      if (slots[at + 2] !== empty) return depth;
    }
    return -1;
  }

  /** Low word, high word and depth of every hole, one after the other, in no particular order. */
  list(): number[] {
    const slots = this.#slots;
    const holes: number[] = [];
    for (let at = 0; at < slots.length; at += slotWords) {
      if (slots[at + 2] !== empty) holes.push(slots[at]!, slots[at + 1]!, slots[at + 2]!);
    }
    return holes;
  }

  #find(low: number, high: number): number {
    const slots = this.#slots;
    let at = this.#home(low);
    while (slots[at + 2] !== empty && (slots[at] !== low || slots[at + 1] !== high))
      at = (at + slotWords) % slots.length;
    return at;
  }

  #home(low: number): number {
    return Math.floor((low / 0x1_0000_0000) * (this.#slots.length / slotWords)) * slotWords;
  }

  #resize(length: number): void {
    const old = this.#slots;
    this.#slots = new Uint32Array(length).fill(empty);
    for (let from = 0; from < old.length; from += slotWords) {
      if (old[from + 2] === empty) continue;
      this.#slots.set(old.subarray(from, from + slotWords), this.#find(old[from]!, old[from + 1]!));
    }
  }
}
