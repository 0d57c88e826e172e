/** Default of what is remembered. */
export const maxDroppedBlocks = 262_144;

/** Slots where a block may be. */
const window = 8;

/**
 * The blocks that targets dropped last, and how many uses of placements came before. An open table that never grows: of
 * the blocks that share a window, the oldest goes. A placement of a block that is forgotten counts until its TTL ends.
 */
export class DroppedBlocks {
  readonly #capacity: number;
  /** Undefined until the first block is dropped. */
  #columns: ReturnType<typeof createColumns> | undefined;
  /** Changes which one goes of those that are equally old. */
  #turn = 0;

  /** @param capacity a power of two, at least 8 */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get byteLength(): number {
    return this.#columns ? this.#capacity * bytesPerBlock : 0;
  }

  /** @param uses number of the last use before it */
  add(target: number, low: number, high: number, uses: number): void {
    this.#columns ??= createColumns(this.#capacity);
    const { lows, highs, targets, lastUses } = this.#columns;
    const first = this.#firstSlot(target, low);
    let slot = first;
    this.#turn += 1;
    for (let at = 0; at < window; at++) {
      const probe = first + ((this.#turn + at) & (window - 1));
      if (lows[probe] === low && highs[probe] === high && targets[probe] === target) {
        slot = probe;
        break;
      }
      if (at === 0 || lastUses[probe]! < lastUses[slot]!) slot = probe;
    }
    lows[slot] = low;
    highs[slot] = high;
    targets[slot] = target;
    lastUses[slot] = uses;
  }

  /** Whether the target dropped the block after use number `use`. */
  isDroppedSince(target: number, low: number, high: number, use: number): boolean {
    if (!this.#columns) return false;
    const { lows, highs, targets, lastUses } = this.#columns;
    const first = this.#firstSlot(target, low);
    for (let probe = first; probe < first + window; probe++) {
      if (lows[probe] === low && highs[probe] === high && targets[probe] === target) return lastUses[probe]! >= use;
    }
    return false;
  }

  #firstSlot(target: number, low: number): number {
    const mixed = Math.imul(low ^ Math.imul(target, 0x9e3779b1), 0x85ebca6b);
    return (mixed ^ (mixed >>> 15)) & (this.#capacity - window);
  }
}

const bytesPerBlock = 18;

function createColumns(capacity: number) {
  return {
    lows: new Uint32Array(capacity),
    highs: new Uint32Array(capacity),
    targets: new Uint16Array(capacity),
    // Uses count from 1, so that an empty slot is older than any.
    lastUses: new Float64Array(capacity),
  };
}
