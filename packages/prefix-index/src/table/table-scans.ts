import { createSetPairs, pairWords } from "./holder-sets.ts";
import type { HolderTable } from "./holder-table.ts";
import { type SlotTable, slotWords } from "./slot-table.ts";

/** Bound of slots visited and of blocks found per step, so that a step takes about a millisecond. */
const slotsPerStep = 16_384;
const blocksPerStep = 8_192;
/** Approximate bound of pairs of block and holder found per step. */
const pairsPerStep = 65_536;

const unknown = -1;
const ignored = -2;

/** Blocks with the same holders. */
interface HeldGroup {
  readonly holders: readonly number[];
  /** Two words per block. */
  readonly words: Uint32Array;
}

/**
 * Reads what holders hold, in one pass over the table, step by step. The table may change between steps: every block
 * that is held throughout comes exactly once, and a holder that was cleared after the beginning yields nothing.
 */
export class SetScan {
  readonly #table: HolderTable;
  readonly #ranges: KeyRanges;
  /** One bit per internal id to read. */
  readonly #wanted: Uint32Array;
  readonly #retirements: Uint32Array;
  readonly #members = createSetPairs();
  readonly #isWhole: boolean;
  /** The group of a set, and of an internal id that has its own, in the present step. */
  #groupOfSet = new Int32Array(1_024).fill(unknown);
  readonly #groupOfHolder: Int32Array;
  #sets: number[] = [];
  #groups: { holders: readonly number[]; blocks: number }[] = [];
  /** Three words per found block: its hash and its group. */
  #found = new Uint32Array((blocksPerStep + 1_024) * slotWords);
  #length = 0;
  #pairs = 0;

  /** @param holders holders to read; all if undefined */
  constructor(table: HolderTable, holders: readonly number[] | undefined) {
    const { ids, slots } = table;
    this.#table = table;
    this.#ranges = new KeyRanges(slots.size);
    this.#retirements = ids.retirements.slice();
    this.#isWhole = holders === undefined;
    this.#wanted = ids.live.slice();
    this.#groupOfHolder = new Int32Array(ids.capacity).fill(unknown);
    if (holders === undefined) return;
    this.#wanted.fill(0);
    for (const holder of holders) {
      const id = ids.find(holder);
      if (id >= 0) this.#wanted[id >>> 5]! |= 1 << (id & 31);
    }
  }

  get isDone(): boolean {
    return this.#ranges.isDone;
  }

  /** Reads a bounded part of the rest. */
  step(): HeldGroup[] {
    const { slots } = this.#table;
    const ranges = this.#ranges;
    const take = (at: number): void => this.#take(at);
    let visited = 0;
    while (!ranges.isDone && visited < slotsPerStep && this.#length < blocksPerStep * slotWords) {
      if (this.#pairs >= pairsPerStep) break;
      ranges.advance();
      visited += visitRange(slots, ranges.from, ranges.to, take);
    }
    return this.#gather();
  }

  #take(at: number): void {
    const { words } = this.#table.slots;
    const set = words[at + 2]!;
    let group = set < this.#groupOfSet.length ? this.#groupOfSet[set]! : unknown;
    if (group === unknown) group = this.#begin(set);
    if (group === ignored) return;
    if (this.#length === this.#found.length) {
      const longer = new Uint32Array(this.#length * 2);
      longer.set(this.#found);
      this.#found = longer;
    }
    const found = this.#found;
    found[this.#length] = words[at]!;
    found[this.#length + 1] = words[at + 1]!;
    found[this.#length + 2] = group;
    this.#length += slotWords;
    this.#groups[group]!.blocks++;
    this.#pairs += this.#groups[group]!.holders.length;
  }

  /** The group of a set that is new in this step. */
  #begin(set: number): number {
    if (set >= this.#groupOfSet.length) {
      const longer = new Int32Array(Math.max(set + 1, this.#groupOfSet.length * 2)).fill(unknown);
      longer.set(this.#groupOfSet);
      this.#groupOfSet = longer;
    }
    this.#sets.push(set);
    const holders = this.#holdersOf(set);
    // With few holders, many sets reduce to the same one.
    const alone = !this.#isWhole && holders.length === 1 ? holders[0]! : unknown;
    const id = alone === unknown ? unknown : this.#table.ids.find(alone);
    let group = id === unknown ? unknown : this.#groupOfHolder[id]!;
    if (holders.length === 0) group = ignored;
    else if (group === unknown) {
      group = this.#groups.push({ holders, blocks: 0 }) - 1;
      if (id !== unknown) this.#groupOfHolder[id] = group;
    }
    this.#groupOfSet[set] = group;
    return group;
  }

  /** Those of the read holders that were not cleared since the beginning. */
  survivors(): number[] {
    const holders: number[] = [];
    for (let word = 0; word < this.#wanted.length; word++) this.#addHolders(word, this.#wanted[word]!, holders);
    return holders;
  }

  #holdersOf(set: number): number[] {
    const members = this.#members;
    this.#table.sets.pairsOf(set, members);
    const holders: number[] = [];
    for (let pair = members.at; pair < members.at + members.count * pairWords; pair += pairWords) {
      this.#addHolders(members.words[pair]!, members.words[pair + 1]!, holders);
    }
    return holders;
  }

  #addHolders(word: number, idBits: number, out: number[]): void {
    const { ids } = this.#table;
    for (let bits = idBits & ids.live[word]! & this.#wanted[word]!; bits !== 0; bits &= bits - 1) {
      const id = word * 32 + 31 - Math.clz32(bits & -bits);
      if (ids.retirements[id] === this.#retirements[id]) out.push(ids.holderOf[id]!);
    }
  }

  /** The found blocks, group by group. Set numbers are not stable across steps. */
  #gather(): HeldGroup[] {
    const groups = this.#groups.map(({ holders, blocks }) => ({ holders, words: new Uint32Array(blocks * 2) }));
    const ends = new Uint32Array(groups.length);
    const found = this.#found;
    for (let at = 0; at < this.#length; at += slotWords) {
      const group = found[at + 2]!;
      const { words } = groups[group]!;
      const to = ends[group]!;
      words[to] = found[at]!;
      words[to + 1] = found[at + 1]!;
      ends[group] = to + 2;
    }
    for (const set of this.#sets) this.#groupOfSet[set] = unknown;
    if (!this.#isWhole) this.#groupOfHolder.fill(unknown);
    this.#sets = [];
    this.#groups = [];
    this.#length = 0;
    this.#pairs = 0;
    return groups;
  }
}

const twoTo32 = 0x1_0000_0000;
/** Keys from one range cluster in the table that takes them, so ranges are small; but each costs a cache miss. */
const slotsPerRange = 64;
const goldenRatio = 0.618_033_988_75;

/**
 * All low words in ranges of about this many slots, in an order that spreads any number of successive ranges evenly: in
 * steps of about the golden ratio of their number.
 */
class KeyRanges {
  /** The first low word of the present range, and the first after it. */
  from = 0;
  to = 0;
  readonly #count: number;
  readonly #stride: number;
  #next = 0;
  #left: number;

  /** @param slots slots of the table to read; it may change its size meanwhile */
  constructor(slots: number) {
    this.#count = Math.ceil(slots / slotsPerRange);
    this.#left = this.#count;
    this.#stride = spreadingStride(this.#count);
  }

  get isDone(): boolean {
    return this.#left === 0;
  }

  /** Moves to the next range. */
  advance(): void {
    this.from = this.#boundOf(this.#next);
    this.to = this.#boundOf(this.#next + 1);
    this.#next = (this.#next + this.#stride) % this.#count;
    this.#left--;
  }

  #boundOf(range: number): number {
    return range === this.#count ? twoTo32 : Math.floor((range / this.#count) * twoTo32);
  }
}

/** About the golden ratio of a number, coprime to it: steps of this size visit every position once. */
function spreadingStride(count: number): number {
  let stride = Math.max(1, Math.round(count * goldenRatio));
  while (greatestCommonDivisor(stride, count) > 1) stride++;
  return stride;
}

function greatestCommonDivisor(one: number, other: number): number {
  return other === 0 ? one : greatestCommonDivisor(other, one % other);
}

/**
 * Calls `visit` for every key with a low word in a range, with the index of its slot's first word.
 *
 * @returns slots visited
 */
function visitRange(table: SlotTable, from: number, to: number, visit: (at: number) => void): number {
  // While the table changes its size there may be many empty slots where the layouts meet.
  const { boundary } = table;
  if (from < boundary && boundary < to) {
    return visitRange(table, from, boundary, visit) + visitRange(table, boundary, to, visit);
  }
  const { words } = table;
  const first = table.homeOf(from);
  const lastHome = table.homeOf(to - 1);
  let at = first;
  for (; words[at + 2] !== 0 || at <= lastHome; at += slotWords) {
    if (words[at + 2] === 0) continue;
    const low = words[at]!;
    if (low >= to) break;
    if (low >= from) visit(at);
  }
  return (at - first) / slotWords + 1;
}
