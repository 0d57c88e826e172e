/** Default of what is remembered. */
export const maxDroppedBlocks = 262_144;

/** Places where a block may be: together they fill one cache line. */
const places = 4;
/** Words of a record: the hash, its high word mixed with the target, and the number of a use. */
const words = 4;

/**
 * The blocks that targets dropped last, and how many uses of placements came before. An open table that never grows: of
 * the blocks that share a line, the oldest goes. A placement of a block that is forgotten counts until its TTL ends.
 */
export class DroppedBlocks {
  readonly #capacity: number;
  /** Undefined until the first block is dropped. Uses count from 1, so an empty record is older than any. */
  #records: Uint32Array | undefined;
  /** Changes which one goes of those that are equally old. */
  #turn = 0;

  /** @param capacity a power of two, at least 4 */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get byteLength(): number {
    return this.#records?.byteLength ?? 0;
  }

  /** @param uses number of the last use before it */
  add(target: number, low: number, high: number, uses: number): void {
    this.#records ??= new Uint32Array(this.#capacity * words);
    const records = this.#records;
    const line = this.#lineOf(target, low);
    const mixed = mixedWith(target, high);
    let oldest = line;
    this.#turn += 1;
    for (let at = 0; at < places; at++) {
      const record = line + ((this.#turn + at) & (places - 1)) * words;
      if (records[record] === low && records[record + 1] === mixed) {
        oldest = record;
        break;
      }
      // The low words will do: that they begin again changes at most which one is forgotten.
      if (at === 0 || records[record + 2]! < records[oldest + 2]!) oldest = record;
    }
    records[oldest] = low;
    records[oldest + 1] = mixed;
    records[oldest + 2] = uses;
    records[oldest + 3] = uses / 2 ** 32;
  }

  /** Whether the target dropped the block after use number `use`. */
  isDroppedSince(target: number, low: number, high: number, use: number): boolean {
    const records = this.#records;
    if (!records) return false;
    const line = this.#lineOf(target, low);
    const mixed = mixedWith(target, high);
    for (let record = line; record < line + places * words; record += words) {
      if (records[record] === low && records[record + 1] === mixed) return useOf(records, record) >= use;
    }
    return false;
  }

  #lineOf(target: number, low: number): number {
    const mixed = Math.imul(mixedWith(target, low), 0x85ebca6b);
    return ((mixed ^ (mixed >>> 15)) & (this.#capacity - places)) * words;
  }
}

function mixedWith(target: number, word: number): number {
  return (word ^ Math.imul(target + 1, 0x9e3779b1)) >>> 0;
}

function useOf(records: Uint32Array, record: number): number {
  return records[record + 3]! * 2 ** 32 + records[record + 2]!;
}
