import type { Hash64 } from "@espalier/core";
import { tier } from "../tiers.ts";
import { NodeMap } from "./node-map.ts";
import { NodeTable } from "./node-table.ts";

/** Words of a record: the engine's hash, two that the table needs, then the groups that have the block, by tier. */
const field = { engine: 0, gpu: 4, cpu: 5 } as const;
const recordWords = 6;
const bitsOfCopy = 64;

/**
 * What the cache groups that need only a part of a prefix have, by the engine's hashes: their blocks exist whether or
 * not full attention still has the same ones. Only GPU and CPU count. An engine may have several copies of a block, and
 * announces the removal of each.
 */
export class GroupBlocks {
  readonly #table: NodeTable;
  readonly #names: NodeMap;
  /** Copies beyond the first, by record and group. */
  readonly #copies = new Copies();
  /** By record: the block before it in its prompt, and the ends of larger blocks that it is part of. See `place`. */
  readonly #previous = new Map<number, Hash64>();
  readonly #ends = new Map<number, Hash64[]>();

  /** @param maxBlocks bound on blocks, at most 2^24 - 2 */
  constructor(maxBlocks: number) {
    this.#table = new NodeTable(recordWords, maxBlocks);
    this.#names = new NodeMap(this.#table, field.engine);
  }

  get byteLength(): number {
    return this.#table.byteLength + this.#names.byteLength;
  }

  /**
   * Records where a block is that is smaller than those of full attention, and so has no place in the tree of chains.
   *
   * @param previous the block before it, of the same size
   * @param end the last block of the block of full attention that it is part of
   */
  place({ low, high }: Hash64, previous: Hash64 | undefined, end: Hash64): void {
    const record = this.#names.find(low, high);
    if (record === 0) return;
    if (previous) this.#previous.set(record, previous);
    const ends = this.#ends.get(record) ?? [];
    if (!ends.some((known) => known.low === end.low && known.high === end.high)) ends.push(end);
    this.#ends.set(record, ends);
  }

  /** The block before a placed one. */
  previousOf({ low, high }: Hash64): Hash64 | undefined {
    return this.#previous.get(this.#names.find(low, high));
  }

  /** The ends of the blocks of full attention that a placed block is part of. */
  endsOf({ low, high }: Hash64): readonly Hash64[] {
    return this.#ends.get(this.#names.find(low, high)) ?? [];
  }

  /** The groups that have a block, one bit each. */
  groupsOf(low: number, high: number): number {
    const record = this.#names.find(low, high);
    if (record === 0) return 0;
    const at = record * recordWords;
    return this.#table.words[at + field.gpu]! | this.#table.words[at + field.cpu]!;
  }

  store(low: number, high: number, bit: number, inTier: number): void {
    const word = wordOf(inTier);
    if (word === undefined) return;
    let record = this.#names.find(low, high);
    if (record === 0) {
      if (!this.#table.hasRoomFor(1)) return;
      record = this.#table.allocate();
      this.#table.words[record * recordWords] = low;
      this.#table.words[record * recordWords + 1] = high;
      this.#names.add(record);
    }
    const at = record * recordWords + word;
    if ((this.#table.words[at]! & bit) === 0) this.#table.words[at]! |= bit;
    else this.#copies.add(copyKey(record, bit, inTier));
  }

  /** @returns whether the group no longer has the block in this tier, and had it */
  remove(low: number, high: number, bit: number, inTier: number): boolean {
    const word = wordOf(inTier);
    const record = word === undefined ? 0 : this.#names.find(low, high);
    if (word === undefined || record === 0) return false;
    const { words } = this.#table;
    const at = record * recordWords;
    if ((words[at + word]! & bit) === 0) return false;
    if (this.#copies.drop(copyKey(record, bit, inTier))) return false;
    words[at + word]! &= ~bit;
    if (words[at + field.gpu] === 0 && words[at + field.cpu] === 0) {
      this.#names.remove(record);
      this.#table.release(record);
      this.#previous.delete(record);
      this.#ends.delete(record);
    }
    return true;
  }
}

function wordOf(inTier: number): number | undefined {
  if (inTier === tier.gpu) return field.gpu;
  return inTier === tier.cpu ? field.cpu : undefined;
}

const copyKey = (record: number, bit: number, inTier: number): number =>
  record * bitsOfCopy + 2 * (31 - Math.clz32(bit)) + inTier;

/** Copies of blocks beyond the first, by a number that the user gives each block. */
export class Copies {
  readonly #counts = new Map<number, number>();

  add(key: number): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** Counts one copy less, and returns whether there was one beyond the first. */
  drop(key: number): boolean {
    if (this.#counts.size === 0) return false;
    const count = this.#counts.get(key);
    if (count === undefined) return false;
    if (count === 1) this.#counts.delete(key);
    else this.#counts.set(key, count - 1);
    return true;
  }

  /** Forgets all copies of a block. */
  forget(key: number): void {
    if (this.#counts.size > 0) this.#counts.delete(key);
  }
}
