import { bitCount, createSetPairs, pairWords, type SetPairs } from "./holder-sets.ts";
import type { HolderTable } from "./holder-table.ts";
import { findSlot, slotWords } from "./slot-table.ts";

/** Holders and how many leading blocks each has: a structure of arrays that is reused between queries. */
export interface HolderDepths {
  count: number;
  readonly holders: Int32Array;
  readonly depths: Int32Array;
}

/** @param maxHolders that of the table */
export function createHolderDepths(maxHolders: number): HolderDepths {
  return { count: 0, holders: new Int32Array(maxHolders), depths: new Int32Array(maxHolders) };
}

/**
 * Words of a stretch of the chain whose ends have different numbers of the group: first block, last block, the sets
 * there, and how many of the group are in each.
 */
const stretchWords = 6;

/**
 * Finds how much of a chain each holder has. A chain hash identifies its whole prefix, so along the chain the holders
 * of the first block drop out one by one and none returns: if two blocks have the same number of them, the holders are
 * the same in between. Stretches with a change are bisected until it is found, all stretches one step at a time, so
 * that the cache misses of a step overlap. Holders with a hole on the chain are bisected one by one up to their
 * shallowest hole.
 */
export class HolderMatcher {
  readonly #table: HolderTable;
  readonly #pairs = createSetPairs();
  readonly #otherPairs = createSetPairs();
  /** Holders of the first block that are bisected together, one bit each; all zero between queries. */
  readonly #group: Uint32Array;
  #out = createHolderDepths(0);
  #stretches = new Uint32Array(64 * stretchWords);
  #next = new Uint32Array(64 * stretchWords);
  /** The set in the middle of each stretch. */
  #probed = new Uint32Array(64);

  constructor(table: HolderTable) {
    this.#table = table;
    this.#group = new Uint32Array(table.ids.live.length);
  }

  /**
   * Finds every holder of the first block, and how many leading blocks it has: exactly what walking the chain block by
   * block would find.
   *
   * @param words two words per block, low word first
   * @throws RangeError if `words` is shorter than `blockCount` says
   */
  match(words: Uint32Array, blockCount: number, out: HolderDepths): void {
    out.count = 0;
    if (blockCount * 2 > words.length) throw new RangeError(`${words.length} words are no ${blockCount} blocks`);
    if (blockCount <= 0) return;
    const first = this.#table.setOf(words, 0);
    if (first === 0) return;
    this.#out = out;
    const members = this.#gather(first, words, blockCount);
    if (members > 0) this.#bisectGroup(words, blockCount, first, members);
    const { words: pool, at, count } = this.#view(first, this.#pairs);
    for (let pair = at; pair < at + count * pairWords; pair += pairWords) this.#group[pool[pair]!] = 0;
  }

  /** Makes a group of the holders of a set, answers for the special ones, and returns the size of the group. */
  #gather(set: number, words: Uint32Array, blockCount: number): number {
    const { live, special } = this.#table.ids;
    const { words: pool, at, count } = this.#view(set, this.#pairs);
    let members = 0;
    for (let pair = at; pair < at + count * pairWords; pair += pairWords) {
      const word = pool[pair]!;
      let bits = pool[pair + 1]! & live[word]!;
      for (let odd = bits & special[word]!; odd !== 0; odd &= odd - 1) {
        const bit = odd & -odd;
        if (this.#answerAlone(word * 32 + 31 - Math.clz32(bit), words, blockCount)) bits &= ~bit;
      }
      this.#group[word] = bits;
      members += bitCount(bits);
    }
    return members;
  }

  /** Answers for a holder that cannot be bisected with the others. Returns whether it was one. */
  #answerAlone(id: number, words: Uint32Array, blockCount: number): boolean {
    const { ids } = this.#table;
    const out = this.#out;
    let depth = 1;
    if (ids.linear.has(id)) {
      while (depth < blockCount && this.#holds(id, words, depth)) depth++;
    } else {
      const hole = ids.holes.get(id)?.shallowestOn(words, blockCount) ?? -1;
      if (hole < 0) return false;
      let missing = hole;
      while (missing - depth > 0) {
        const middle = (depth + missing) >>> 1;
        if (this.#holds(id, words, middle)) depth = middle + 1;
        else missing = middle;
      }
    }
    out.holders[out.count] = ids.holderOf[id]!;
    out.depths[out.count++] = depth;
    return true;
  }

  #holds(id: number, words: Uint32Array, block: number): boolean {
    return this.#table.sets.has(this.#table.setOf(words, block), id);
  }

  #bisectGroup(words: Uint32Array, blockCount: number, first: number, members: number): void {
    const last = blockCount - 1;
    const lastSet = last === 0 ? first : this.#table.setOf(words, last);
    const lastCount = lastSet === first ? members : this.#table.sets.countIn(lastSet, this.#group);
    if (lastCount > 0) this.#answerLeft(lastSet, 0, blockCount);
    if (lastCount === members) return;
    const stretches = this.#stretches;
    stretches[0] = 0;
    stretches[1] = last;
    stretches[2] = first;
    stretches[3] = lastSet;
    stretches[4] = members;
    stretches[5] = lastCount;
    let count = 1;
    if (last === 1) {
      this.#answerLeft(first, lastSet, 1);
      count = 0;
    }
    while (count > 0) {
      this.#probeMiddles(words, count);
      count = this.#split(count);
      const done = this.#stretches;
      this.#stretches = this.#next;
      this.#next = done;
    }
  }

  /** Looks up the set in the middle of every stretch. The lookups are independent of each other. */
  #probeMiddles(words: Uint32Array, count: number): void {
    if (this.#probed.length < count) this.#probed = new Uint32Array(count * 2);
    if (this.#next.length < count * 2 * stretchWords) this.#next = new Uint32Array(count * 4 * stretchWords);
    const { words: table, boundary, scaleLow, scaleHigh } = this.#table.slots;
    const stretches = this.#stretches;
    const probed = this.#probed;
    for (let index = 0, at = 0; index < count; index++, at += stretchWords) {
      const middle = (stretches[at]! + stretches[at + 1]!) >>> 1;
      const low = words[middle * 2]!;
      const home = Math.imul(low * (low < boundary ? scaleLow : scaleHigh), slotWords);
      const slot = findSlot(table, home, low, words[middle * 2 + 1]!);
      probed[index] = slot < 0 ? 0 : table[slot + 2]!;
    }
  }

  /** Keeps the halves of the stretches that contain a change. Returns their number. */
  #split(count: number): number {
    const stretches = this.#stretches;
    const next = this.#next;
    const probed = this.#probed;
    const group = this.#group;
    const { sets } = this.#table;
    let to = 0;
    for (let index = 0, at = 0; index < count; index++, at += stretchWords) {
      const first = stretches[at]!;
      const last = stretches[at + 1]!;
      const firstSet = stretches[at + 2]!;
      const lastSet = stretches[at + 3]!;
      const firstCount = stretches[at + 4]!;
      const lastCount = stretches[at + 5]!;
      const middle = (first + last) >>> 1;
      const set = probed[index]!;
      const present = set === firstSet ? firstCount : set === lastSet ? lastCount : sets.countIn(set, group);
      if (present < firstCount) {
        if (middle - first === 1) this.#answerLeft(firstSet, set, middle);
        else {
          next[to] = first;
          next[to + 1] = middle;
          next[to + 2] = firstSet;
          next[to + 3] = set;
          next[to + 4] = firstCount;
          next[to + 5] = present;
          to += stretchWords;
        }
      }
      if (present > lastCount) {
        if (last - middle === 1) this.#answerLeft(set, lastSet, last);
        else {
          next[to] = middle;
          next[to + 1] = last;
          next[to + 2] = set;
          next[to + 3] = lastSet;
          next[to + 4] = present;
          next[to + 5] = lastCount;
          to += stretchWords;
        }
      }
    }
    return to / stretchWords;
  }

  /** Answers for the members of the group that are in one set and not in another. */
  #answerLeft(before: number, after: number, depth: number): void {
    const group = this.#group;
    const out = this.#out;
    const { holderOf } = this.#table.ids;
    const one = this.#view(before, this.#pairs);
    const other = this.#view(after, this.#otherPairs);
    let to = out.count;
    let place = 0;
    for (let pair = one.at; pair < one.at + one.count * pairWords; pair += pairWords) {
      const word = one.words[pair]!;
      while (place < other.count && other.words[other.at + place * pairWords]! < word) place++;
      let bits = one.words[pair + 1]! & group[word]!;
      const at = other.at + place * pairWords;
      if (place < other.count && other.words[at] === word) bits &= ~other.words[at + 1]!;
      for (; bits !== 0; bits &= bits - 1) {
        out.holders[to] = holderOf[word * 32 + 31 - Math.clz32(bits & -bits)]!;
        out.depths[to++] = depth;
      }
    }
    out.count = to;
  }

  #view(set: number, pairs: SetPairs): SetPairs {
    this.#table.sets.pairsOf(set, pairs);
    return pairs;
  }
}
