import { type PrefixIndex, type Tier, tier } from "@espalier/prefix-index";

/** Low word, high word, and what happened. */
const entryWords = 3;
const entryBytes = 4 * entryWords;
const minEntries = 64;
/** The third word: the tier, and whether the block was stored. */
const storedFlag = 4;
const tierMask = 3;
/** Blocks that are undone in one call to the index. */
const runBlocks = 256;

/** The blocks that a target got and lost since some moment, in order; what changed nothing is not in it. */
export class ChangeLog {
  #words = new Uint32Array(minEntries * entryWords);
  #length = 0;
  /** Whether any block came to a GPU, where it may have closed a hole. */
  #hasStoredOnGpu = false;

  get count(): number {
    return this.#length / entryWords;
  }

  get byteLength(): number {
    return this.count * entryBytes;
  }

  get hasStoredOnGpu(): boolean {
    return this.#hasStoredOnGpu;
  }

  /** @param words holds the block at its index `block`, two words each */
  stored(inTier: Tier, words: Uint32Array, block: number): void {
    if (inTier === tier.gpu) this.#hasStoredOnGpu = true;
    this.#add(inTier | storedFlag, words, block);
  }

  removed(inTier: Tier, words: Uint32Array, block: number): void {
    this.#add(inTier, words, block);
  }

  clear(): void {
    this.#words = new Uint32Array(minEntries * entryWords);
    this.#length = 0;
    this.#hasStoredOnGpu = false;
  }

  /** Takes everything back, the latest first. Costs what has changed, whatever the target holds. */
  undo(index: PrefixIndex, slot: number): void {
    const run = new Uint32Array(2 * runBlocks);
    let blocks = 0;
    for (let at = this.#length - entryWords; at >= 0; at -= entryWords) {
      const what = this.#words[at + 2]!;
      run[2 * blocks] = this.#words[at]!;
      run[2 * blocks + 1] = this.#words[at + 1]!;
      blocks++;
      if (blocks < runBlocks && at > 0 && this.#words[at - 1] === what) continue;
      const inTier = (what & tierMask) as Tier;
      if ((what & storedFlag) !== 0) index.removeFacts(slot, inTier, run, 0, blocks);
      else index.storeFacts(slot, inTier, run, 0, blocks);
      blocks = 0;
    }
    this.clear();
  }

  /**
   * Calls back for changes in their order.
   *
   * @param from how many to leave out
   */
  visit(from: number, visitor: (inTier: Tier, isStored: boolean, low: number, high: number) => void): void {
    for (let at = from * entryWords; at < this.#length; at += entryWords) {
      const what = this.#words[at + 2]!;
      visitor((what & tierMask) as Tier, (what & storedFlag) !== 0, this.#words[at]!, this.#words[at + 1]!);
    }
  }

  #add(what: number, words: Uint32Array, block: number): void {
    if (this.#length === this.#words.length) {
      const longer = new Uint32Array(this.#length * 2);
      longer.set(this.#words);
      this.#words = longer;
    }
    this.#words[this.#length] = words[2 * block]!;
    this.#words[this.#length + 1] = words[2 * block + 1]!;
    this.#words[this.#length + 2] = what;
    this.#length += entryWords;
  }
}
