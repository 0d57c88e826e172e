/** A holder without an internal id. */
const none = -1;

/**
 * The holders as the table's entries know them. A holder has an internal id while it holds anything. Voiding the holder
 * retires the id in one step; the id is reused only after a sweep has removed it from all entries.
 */
export class HolderIds {
  /** One bit per internal id that belongs to a holder, 32 per word. */
  readonly live: Uint32Array;
  /** One bit per internal id that has holes, or is walked block by block. */
  readonly special: Uint32Array;
  /** One bit per internal id that the present sweep removes. */
  readonly swept: Uint32Array;
  /** The holder of an internal id, -1 for none. */
  readonly holderOf: Int32Array;
  /** Blocks held, by internal id. */
  readonly blocks: Uint32Array;
  /** By internal id: the sums of the low words and of the high words that it holds, modulo 2^32. */
  readonly sums: Uint32Array;
  /** How often an internal id was retired. */
  readonly retirements: Uint32Array;
  readonly holes = new Map<number, HoleSet>();
  /** Internal ids that violate "the parent of a held block is held or a hole". */
  readonly linear = new Set<number>();
  readonly capacity: number;
  readonly #idOf: Int32Array;
  readonly #free: number[] = [];
  #handedOut = 0;
  #retired: number[] = [];
  #sweeping: number[] = [];

  constructor(maxHolders: number) {
    // While all holders are live, the same number of ids may wait for the sweep.
    this.capacity = Math.ceil((maxHolders * 2) / 32) * 32;
    this.#idOf = new Int32Array(maxHolders).fill(none);
    this.holderOf = new Int32Array(this.capacity).fill(none);
    this.blocks = new Uint32Array(this.capacity);
    this.sums = new Uint32Array(this.capacity * 2);
    this.retirements = new Uint32Array(this.capacity);
    this.live = new Uint32Array(this.capacity / 32);
    this.special = new Uint32Array(this.capacity / 32);
    this.swept = new Uint32Array(this.capacity / 32);
  }

  /** @returns the internal id of a holder, or -1 */
  find(holder: number): number {
    const id = this.#idOf[holder];
    if (id === undefined) throw new RangeError(`holder ${holder} is not in 0..${this.#idOf.length - 1}`);
    return id;
  }

  /** @returns a fresh internal id for a holder without one, or -1 while every free one waits for a sweep */
  take(holder: number): number {
    const id = this.#free.pop() ?? (this.#handedOut < this.capacity ? this.#handedOut++ : none);
    if (id === none) return none;
    this.#idOf[holder] = id;
    this.holderOf[id] = holder;
    this.live[id >>> 5]! |= 1 << (id & 31);
    return id;
  }

  /** Separates a holder from its internal id, which no lookup finds any more. */
  retire(holder: number): void {
    const id = this.find(holder);
    if (id === none) return;
    this.#idOf[holder] = none;
    this.holderOf[id] = none;
    this.live[id >>> 5]! &= ~(1 << (id & 31));
    this.special[id >>> 5]! &= ~(1 << (id & 31));
    this.blocks[id] = 0;
    this.sums.fill(0, id * 2, id * 2 + 2);
    this.holes.delete(id);
    this.linear.delete(id);
    this.retirements[id]!++;
    this.#retired.push(id);
  }

  get isSweepDue(): boolean {
    return this.#retired.length > 0;
  }

  /** Makes the sweep remove every id retired so far. */
  beginSweep(): void {
    this.#sweeping = this.#retired;
    this.#retired = [];
    for (const id of this.#sweeping) this.swept[id >>> 5]! |= 1 << (id & 31);
  }

  /** Frees the ids that the sweep has removed from all entries. */
  endSweep(): void {
    for (const id of this.#sweeping) {
      this.swept[id >>> 5]! &= ~(1 << (id & 31));
      this.#free.push(id);
    }
    this.#sweeping = [];
  }

  /** The holes of an internal id, created on first use. */
  holesOf(id: number): HoleSet {
    let holes = this.holes.get(id);
    if (!holes) {
      holes = new HoleSet();
      this.holes.set(id, holes);
    }
    this.special[id >>> 5]! |= 1 << (id & 31);
    return holes;
  }

  forgetHoles(id: number): void {
    this.holes.delete(id);
    if (!this.linear.has(id)) this.special[id >>> 5]! &= ~(1 << (id & 31));
  }

  /** Has an id walked block by block from now on. */
  setLinear(id: number): void {
    this.linear.add(id);
    this.holes.delete(id);
    this.special[id >>> 5]! |= 1 << (id & 31);
  }
}

const slotWords = 3;
const minSlots = 8;

/** A hole at this depth marks an empty slot; no chain is that long. */
const empty = 0xffff_ffff;

/**
 * The holes of one holder: blocks that it dropped although it still holds blocks after them, each with its depth in the
 * chain (0 for a first block).
 */
export class HoleSet {
  count = 0;
  #slots = new Uint32Array(minSlots * slotWords).fill(empty);

  get byteLength(): number {
    return this.#slots.byteLength;
  }

  /** @returns false if the set is full and nothing changed */
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

  /** Low word, high word and depth of every hole in sequence, unordered. */
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
