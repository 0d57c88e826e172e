import { slotWords } from "./find-slot.ts";
import type { HolderTable } from "./holder-table.ts";
import { KeyRanges, visitRange } from "./key-ranges.ts";
import { createSetPairs, pairWords } from "./set-pairs.ts";

/** Slots visited, and blocks found, in one step, so that it takes about a millisecond. */
const slotsPerStep = 16_384;
const blocksPerStep = 8_192;
/** Pairs of block and holder found in one step, about. */
const pairsPerStep = 65_536;

const unknown = -1;
const ignored = -2;

/** Blocks that some holders hold alike. */
export interface HeldGroup {
  readonly holders: readonly number[];
  /** Two words per block. */
  readonly words: Uint32Array;
}

/**
 * Reads what holders hold, in one pass over the table, step by step. The table may change between steps: every block that
 * is held all the while comes exactly once, and nothing comes of a holder that was cleared after the beginning.
 */
export class SetScan {
  readonly #table: HolderTable;
  readonly #ranges: KeyRanges;
  /** One bit per internal id that is read. */
  readonly #wanted: Uint32Array;
  readonly #retirements: Uint32Array;
  readonly #members = createSetPairs();
  readonly #isWhole: boolean;
  /** The group of a set, and of an internal id that has one of its own, in the present step. */
  #groupOfSet = new Int32Array(1_024).fill(unknown);
  readonly #groupOfHolder: Int32Array;
  #sets: number[] = [];
  #groups: { holders: readonly number[]; blocks: number }[] = [];
  /** Three words per block that was found: its hash and its group. */
  #found = new Uint32Array((blocksPerStep + 1_024) * slotWords);
  #length = 0;
  #pairs = 0;

  /** @param holders those to read; all when undefined */
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

  /** Reads a bounded part of what is left. */
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

  /** The group of a set that is met for the first time in this step. */
  #begin(set: number): number {
    if (set >= this.#groupOfSet.length) {
      const longer = new Int32Array(Math.max(set + 1, this.#groupOfSet.length * 2)).fill(unknown);
      longer.set(this.#groupOfSet);
      this.#groupOfSet = longer;
    }
    this.#sets.push(set);
    const holders = this.#holdersOf(set);
    // Of few holders the same one is left of many sets.
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

  /** Those holders that are read and were not cleared since the beginning. */
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

  /** What was found, group by group. Numbers of sets mean something else in the next step. */
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
