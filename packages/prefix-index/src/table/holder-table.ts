import { mixWord } from "@espalier/core";
import { BatchWriter, Sweeper } from "./batch-writer.ts";
import { HolderIds } from "./holder-ids.ts";
import { createSetPairs, HolderSets, pairWords } from "./holder-sets.ts";
import { SlotTable, slotWords } from "./slot-table.ts";

export interface HolderTableOptions {
  /** Holders are 0 to this, exclusive. */
  readonly maxHolders: number;
  /** Bound on distinct blocks; blocks beyond it are refused. */
  readonly maxBlocks: number;
  /** Bound on distinct sets of two or more holders. */
  readonly maxSets: number;
  /** Bound on the holes of one holder; a holder with more is walked block by block. */
  readonly maxHoles: number;
}

const holesPerChunk = 16_384;
const batchBlocks = 256;
const sweptSlotsPerStore = 8;
const sweptSlotsPerRemoval = 16;

/**
 * Which holders hold which blocks. Blocks are chain hashes of two words each, low word first; a holder is a small
 * number. If a holder holds a block, it also holds its parent, or the parent is a hole. So a caller that removes a
 * block whose children the holder still holds must use `removeOrphaning`.
 */
export class HolderTable {
  readonly slots: SlotTable;
  readonly sets: HolderSets;
  readonly ids: HolderIds;
  /** The high word of the block that `findByLow` found. */
  foundHigh = 0;
  readonly #maxHoles: number;
  readonly #writer: BatchWriter;
  readonly #sweeper: Sweeper;
  readonly #members = createSetPairs();

  constructor({ maxHolders, maxBlocks, maxSets, maxHoles }: HolderTableOptions) {
    this.slots = new SlotTable(maxBlocks);
    this.ids = new HolderIds(maxHolders);
    this.sets = new HolderSets({ maxHolders: this.ids.capacity, maxSets });
    this.#maxHoles = maxHoles;
    this.#writer = new BatchWriter(this);
    this.#sweeper = new Sweeper(this, this.#writer);
  }

  /** Pairs of block and holder. */
  get pairs(): number {
    return this.#writer.pairs;
  }

  /** Pairs not stored, or dropped, because of a bound. */
  get refused(): number {
    return this.#writer.refused;
  }

  get byteLength(): number {
    let holes = 0;
    for (const set of this.ids.holes.values()) holes += set.byteLength;
    return this.slots.byteLength + this.sets.byteLength + holes;
  }

  blockCount(holder: number): number {
    const id = this.ids.find(holder);
    return id < 0 ? 0 : this.ids.blocks[id]!;
  }

  /**
   * Stores the blocks `from` to `to` (exclusive) of `words`, and closes holes that they fill.
   *
   * @returns how many the holder did not hold before
   */
  store(holder: number, words: Uint32Array, from: number, to: number): number {
    if (from >= to) return 0;
    const id = this.#idFor(holder);
    let stored = 0;
    for (let begin = from; begin < to; begin += batchBlocks) {
      const end = Math.min(to, begin + batchBlocks);
      stored += this.#writer.store(id, words, begin, end);
      const holes = this.ids.holes.get(id);
      if (holes) for (let block = begin; block < end; block++) holes.delete(words[block * 2]!, words[block * 2 + 1]!);
      if (holes?.count === 0) this.ids.forgetHoles(id);
    }
    this.sweep((to - from) * sweptSlotsPerStore);
    return stored;
  }

  /**
   * Removes blocks whose children the holder does not hold.
   *
   * @returns how many of them it held
   */
  remove(holder: number, words: Uint32Array, from: number, to: number): number {
    const id = this.ids.find(holder);
    if (id < 0) return 0;
    let removed = 0;
    for (let begin = from; begin < to; begin += batchBlocks) {
      const end = Math.min(to, begin + batchBlocks);
      removed += this.#writer.remove(id, words, begin, end);
    }
    this.sweep((to - from) * sweptSlotsPerRemoval);
    return removed;
  }

  /**
   * Removes the block at `index` of `words` although the holder holds children of it, or records it as missing.
   *
   * @param depth its position in its chain, 0 for a first block
   * @returns whether it was held
   */
  removeOrphaning(holder: number, words: Uint32Array, { index, depth }: { index: number; depth: number }): boolean {
    const removed = this.remove(holder, words, index, index + 1) === 1;
    const id = this.#idFor(holder);
    if (this.ids.linear.has(id)) return removed;
    const hole = { depth, maxHoles: this.#maxHoles };
    if (!this.ids.holesOf(id).add(words[index * 2]!, words[index * 2 + 1]!, hole)) this.ids.setLinear(id);
    return removed;
  }

  /** Removes the hole at `index` of `words`, whose children the holder no longer holds. */
  forgetHole(holder: number, words: Uint32Array, index: number): void {
    const id = this.ids.find(holder);
    const holes = this.ids.holes.get(id);
    if (holes?.delete(words[index * 2]!, words[index * 2 + 1]!) && holes.count === 0) this.ids.forgetHoles(id);
  }

  /** Voids everything that a holder holds, in one step whatever the amount; `sweep` reclaims the memory. */
  clear(holder: number): void {
    const id = this.ids.find(holder);
    if (id < 0) return;
    this.#writer.pairs -= this.ids.blocks[id]!;
    this.ids.retire(holder);
  }

  /**
   * Visits about this many slots to reclaim voided entries.
   *
   * @returns whether more is left to do
   */
  sweep(budgetSlots: number): boolean {
    this.#sweeper.sweep(budgetSlots);
    return !this.#sweeper.isDone;
  }

  /** Whether a holder may hold blocks of a chain after one that it lacks. */
  hasHoles(holder: number): boolean {
    const id = this.ids.find(holder);
    return id >= 0 && ((this.ids.special[id >>> 5]! >>> (id & 31)) & 1) === 1;
  }

  isWalked(holder: number): boolean {
    return this.ids.linear.has(this.ids.find(holder));
  }

  /** The holes of a holder in chunks of bounded size. The holes must not change meanwhile. */
  *holeChunks(holder: number): Generator<{ words: Uint32Array; depths: Uint32Array }, void, undefined> {
    const holes = this.ids.holes.get(this.ids.find(holder))?.list() ?? [];
    for (let from = 0; from < holes.length; from += holesPerChunk * 3) {
      const chunk = holes.slice(from, from + holesPerChunk * 3);
      const words = Uint32Array.from(chunk.filter((_word, index) => index % 3 < 2));
      yield { words, depths: Uint32Array.from(chunk.filter((_word, index) => index % 3 === 2)) };
    }
  }

  /** Marks a holder's holes as unknown: it is walked block by block until it is cleared. */
  walk(holder: number): void {
    this.ids.setLinear(this.#idFor(holder));
  }

  /**
   * Looks for blocks of a holder by the low word of their hashes.
   *
   * @returns 0 for none, 1 for one (its high word is in `foundHigh`), 2 for several
   */
  findByLow(holder: number, low: number): 0 | 1 | 2 {
    const id = this.ids.find(holder);
    if (id < 0) return 0;
    const { words } = this.slots;
    let isFound = false;
    for (let at = this.slots.homeOf(low); words[at + 2] !== 0 && words[at]! <= low; at += slotWords) {
      if (words[at] !== low || !this.sets.has(words[at + 2]!, id)) continue;
      if (isFound) return 2;
      isFound = true;
      this.foundHigh = words[at + 1]!;
    }
    return isFound ? 1 : 0;
  }

  /** Whether a set, as returned by `setOf`, contains a holder. */
  holds(set: number, holder: number): boolean {
    const id = this.ids.find(holder);
    return id >= 0 && this.sets.has(set, id);
  }

  /** The set of holders of a block; 0 for none. */
  setOf(words: Uint32Array, block: number): number {
    return this.slots.valueOf(words[block * 2]!, words[block * 2 + 1]!);
  }

  /**
   * Lists the holders of a block, unordered.
   *
   * @param out long enough for every holder
   * @returns how many there are
   */
  holdersOf(words: Uint32Array, block: number, out: Int32Array): number {
    const members = this.#members;
    this.sets.pairsOf(this.setOf(words, block), members);
    let count = 0;
    for (let pair = members.at; pair < members.at + members.count * pairWords; pair += pairWords) {
      const word = members.words[pair]!;
      for (let bits = members.words[pair + 1]! & this.ids.live[word]!; bits !== 0; bits &= bits - 1) {
        out[count++] = this.ids.holderOf[word * 32 + 31 - Math.clz32(bits & -bits)]!;
      }
    }
    return count;
  }

  /**
   * Adds what a holder holds to a digest of two words. Hashes are well mixed, so their sums distinguish sets, whatever
   * the order of additions. They guard against defects, not against an adversary.
   *
   * @param salt distinguishes the holder from others in the same digest
   */
  addDigest(holder: number, digest: Uint32Array, salt: number): void {
    const id = this.ids.find(holder);
    if (id < 0 || this.ids.blocks[id] === 0) return;
    digest[0]! += mixWord(this.ids.sums[id * 2]! ^ mixWord(salt + this.ids.blocks[id]! * 4));
    digest[1]! += mixWord(this.ids.sums[id * 2 + 1]! + mixWord(salt));
  }

  #idFor(holder: number): number {
    let id = this.ids.find(holder);
    if (id < 0) id = this.ids.take(holder);
    while (id < 0) {
      // Every spare id waits for a sweep: as many ids were retired during it as holders may be live.
      this.sweep(this.slots.size);
      id = this.ids.take(holder);
    }
    return id;
  }
}
