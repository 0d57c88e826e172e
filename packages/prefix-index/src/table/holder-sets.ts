import { GrowableWords, maxRecordWords, WordPool } from "./word-pool.ts";

/** A set is pairs of {index of a word of 32 holders, bits}, by ascending index; words without bits are left out. */
export const pairWords = 2;

/** A view of the pairs of a set, valid until the next change of any set. */
export interface SetPairs {
  words: Uint32Array;
  /** Index of the first word of the first pair. */
  at: number;
  /** In pairs. */
  count: number;
  /** The pair of a set of one holder is written here. */
  readonly own: Uint32Array;
}

export function createSetPairs(): SetPairs {
  const own = new Uint32Array(pairWords);
  return { words: own, at: 0, count: 0, own };
}

/** Bound of holder ids in one set. */
export const maxSetHolders = (maxRecordWords / pairWords) * 32;

/**
 * Words of a set's record: references, offset of its pairs, their number, signature (2), next of its bucket, version.
 */
const recordWords = 7;
const references = 0;
const pairsAt = 1;
const pairCount = 2;
const signatureLow = 3;
const signatureHigh = 4;
const nextInBucket = 5;
const recordVersion = 6;

const none = 0xffff_ffff;

/** All sets together take at most 256 MiB. */
const maxPoolWords = 67_108_864;

/**
 * Interned sets of holder ids, each with a number: 0 is the empty set, 1 + h the set of h alone, which takes no memory.
 * Further numbers are sets of several holders; these count their references and are freed with the last. Equal sets
 * have equal numbers.
 */
export class HolderSets {
  /** The smallest number of a set of several holders. */
  readonly firstShared: number;
  readonly #maxShared: number;
  readonly #pool: WordPool;
  readonly #records: GrowableWords;
  readonly #transitions = new TransitionCache();
  readonly #made: Uint32Array;
  readonly #from = createSetPairs();
  #buckets = new Uint32Array(1_024).fill(none);
  #firstFree = none;
  #handedOut = 0;
  #shared = 0;

  constructor({ maxHolders, maxSets }: { maxHolders: number; maxSets: number }) {
    if (maxHolders > maxSetHolders) throw new RangeError(`at most ${maxSetHolders} holders fit in a set`);
    this.firstShared = maxHolders + 1;
    this.#maxShared = maxSets;
    const maxPairs = Math.ceil(maxHolders / 32);
    this.#made = new Uint32Array(maxPairs * pairWords);
    this.#records = new GrowableWords(maxSets * recordWords, 0);
    this.#pool = new WordPool(Math.min(maxSets * maxPairs * pairWords * 2, maxPoolWords));
  }

  /** Number of live sets of several holders. */
  get sharedCount(): number {
    return this.#shared;
  }

  get byteLength(): number {
    const own = this.#records.words.length + this.#buckets.length + this.#made.length;
    return own * 4 + this.#transitions.byteLength + this.#pool.byteLength;
  }

  /** Reads the pairs of a set into `out`. */
  pairsOf(set: number, out: SetPairs): void {
    if (set >= this.firstShared) {
      const record = (set - this.firstShared) * recordWords;
      out.words = this.#pool.words;
      out.at = this.#records.words[record + pairsAt]!;
      out.count = this.#records.words[record + pairCount]!;
      return;
    }
    out.words = out.own;
    out.at = 0;
    out.count = set === 0 ? 0 : 1;
    out.own[0] = (set - 1) >>> 5;
    out.own[1] = 1 << ((set - 1) & 31);
  }

  has(set: number, holder: number): boolean {
    if (set < this.firstShared) return set === holder + 1;
    const record = (set - this.firstShared) * recordWords;
    const pool = this.#pool.words;
    const word = holder >>> 5;
    let low = 0;
    let high = this.#records.words[record + pairCount]!;
    const at = this.#records.words[record + pairsAt]!;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (pool[at + middle * pairWords]! < word) low = middle + 1;
      else high = middle;
    }
    if (low === this.#records.words[record + pairCount]! || pool[at + low * pairWords] !== word) return false;
    return ((pool[at + low * pairWords + 1]! >>> (holder & 31)) & 1) === 1;
  }

  /** Number of holders of a set in a mask of 32 per word. */
  countIn(set: number, mask: Uint32Array): number {
    if (set < this.firstShared) return set === 0 ? 0 : (mask[(set - 1) >>> 5]! >>> ((set - 1) & 31)) & 1;
    const records = this.#records.words;
    const record = (set - this.firstShared) * recordWords;
    const pool = this.#pool.words;
    const from = records[record + pairsAt]!;
    const to = from + records[record + pairCount]! * pairWords;
    let count = 0;
    for (let pair = from; pair < to; pair += pairWords) count += bitCount(pool[pair + 1]! & mask[pool[pair]!]!);
    return count;
  }

  /** @returns the set plus a holder, which needs a reference from its user; 0 if it does not fit */
  plus(set: number, holder: number): number {
    if (set === 0) return holder + 1;
    return this.#changed(set, holder, true);
  }

  /** @returns the set minus a holder, possibly 0; -1 if it does not fit */
  minus(set: number, holder: number): number {
    if (set < this.firstShared) return set === holder + 1 ? 0 : set;
    return this.#changed(set, holder, false) || -1;
  }

  /** @returns the set without the holders in a mask of 32 per word; -1 if it does not fit */
  without(set: number, mask: Uint32Array): number {
    const from = this.#from;
    this.pairsOf(set, from);
    let made = 0;
    let isTouched = false;
    for (let pair = 0; pair < from.count; pair++) {
      const word = from.words[from.at + pair * pairWords]!;
      const bits = from.words[from.at + pair * pairWords + 1]!;
      if ((bits & mask[word]!) !== 0) isTouched = true;
      made = this.#add(made, word, bits & ~mask[word]!);
    }
    if (!isTouched) return set;
    return made === 0 ? 0 : this.#intern(made) || -1;
  }

  /** Adds references to a set. */
  retain(set: number, count: number): void {
    if (set >= this.firstShared) this.#records.words[(set - this.firstShared) * recordWords + references]! += count;
  }

  /** Drops references to a set, which is freed with the last. */
  release(set: number, count: number): void {
    if (set < this.firstShared) return;
    const index = set - this.firstShared;
    const records = this.#records.words;
    const left = records[index * recordWords + references]! - count;
    records[index * recordWords + references] = left;
    if (left === 0) this.#free(index);
  }

  #changed(set: number, holder: number, add: boolean): number {
    const operation = holder * 2 + (add ? 1 : 0);
    const version = this.#versionOf(set);
    const known = this.#transitions.find(set, version, operation);
    if (known !== 0 && this.#versionOf(known) === this.#transitions.resultVersion) return known;
    const made = this.#make(set, holder, add);
    const result = made === 0 ? set : this.#intern(made);
    if (result === 0 || result === set) return result;
    this.#transitions.remember(set, version, operation, { set: result, version: this.#versionOf(result) });
    return result;
  }

  /** Writes a set with one bit changed into `#made`. Returns the pairs written, 0 if nothing changes. */
  #make(set: number, holder: number, add: boolean): number {
    const from = this.#from;
    this.pairsOf(set, from);
    const target = holder >>> 5;
    const bit = 1 << (holder & 31);
    let made = 0;
    let isDone = false;
    for (let pair = 0; pair < from.count; pair++) {
      const word = from.words[from.at + pair * pairWords]!;
      const bits = from.words[from.at + pair * pairWords + 1]!;
      if (word < target || isDone) {
        made = this.#add(made, word, bits);
        continue;
      }
      isDone = true;
      if (word === target) {
        const changed = add ? bits | bit : bits & ~bit;
        if (changed >>> 0 === bits) return 0;
        made = this.#add(made, word, changed);
      } else {
        if (!add) return 0;
        made = this.#add(made, target, bit);
        made = this.#add(made, word, bits);
      }
    }
    if (isDone) return made;
    return add ? this.#add(made, target, bit) : 0;
  }

  #add(made: number, word: number, bits: number): number {
    if (bits === 0) return made;
    this.#made[made * pairWords] = word;
    this.#made[made * pairWords + 1] = bits;
    return made + 1;
  }

  /** The number of the set whose pairs are in `#made`, new or known; 0 if it does not fit. */
  #intern(pairs: number): number {
    const made = this.#made;
    const first = made[1]!;
    if (pairs === 1 && (first & (first - 1)) === 0) return made[0]! * 32 + (31 - Math.clz32(first)) + 1;
    let low = 0;
    let high = pairs;
    for (let word = 0; word < pairs * pairWords; word++) {
      low = Math.imul(low ^ made[word]!, 0x85ebca6b);
      low ^= low >>> 13;
      high = Math.imul(high + made[word]!, 0xc2b2ae35);
      high ^= high >>> 16;
    }
    const found = this.#find(pairs, low >>> 0, high >>> 0);
    return found === none ? this.#create(pairs, low >>> 0, high >>> 0) : found + this.firstShared;
  }

  #find(pairs: number, low: number, high: number): number {
    const records = this.#records.words;
    const pool = this.#pool.words;
    let index = this.#buckets[low & (this.#buckets.length - 1)]!;
    for (; index !== none; index = records[index * recordWords + nextInBucket]!) {
      const record = index * recordWords;
      if (records[record + signatureLow] !== low || records[record + signatureHigh] !== high) continue;
      if (records[record + pairCount] !== pairs) continue;
      const at = records[record + pairsAt]!;
      let word = 0;
      while (word < pairs * pairWords && pool[at + word] === this.#made[word]) word++;
      if (word === pairs * pairWords) return index;
    }
    return none;
  }

  #create(pairs: number, low: number, high: number): number {
    if (this.#shared === this.#maxShared) return 0;
    const offset = this.#pool.allocate(pairs * pairWords);
    if (offset < 0) return 0;
    this.#pool.words.set(this.#made.subarray(0, pairs * pairWords), offset);
    let index = this.#firstFree;
    if (index === none) {
      index = this.#handedOut++;
      const doubled = Math.max(index + 1, Math.min(this.#maxShared, index * 2));
      if ((index + 1) * recordWords > this.#records.words.length) this.#records.ensure(doubled * recordWords);
    } else this.#firstFree = this.#records.words[index * recordWords + nextInBucket]!;
    this.#shared++;
    if (this.#shared > this.#buckets.length) this.#rehash();
    const records = this.#records.words;
    const record = index * recordWords;
    const bucket = low & (this.#buckets.length - 1);
    records[record + references] = 0;
    records[record + pairsAt] = offset;
    records[record + pairCount] = pairs;
    records[record + signatureLow] = low;
    records[record + signatureHigh] = high;
    records[record + nextInBucket] = this.#buckets[bucket]!;
    this.#buckets[bucket] = index;
    return index + this.firstShared;
  }

  #free(index: number): void {
    const records = this.#records.words;
    const record = index * recordWords;
    const bucket = records[record + signatureLow]! & (this.#buckets.length - 1);
    let before = this.#buckets[bucket]!;
    if (before === index) this.#buckets[bucket] = records[record + nextInBucket]!;
    else {
      while (records[before * recordWords + nextInBucket] !== index)
        before = records[before * recordWords + nextInBucket]!;
      records[before * recordWords + nextInBucket] = records[record + nextInBucket]!;
    }
    this.#pool.free(records[record + pairsAt]!);
    records[record + recordVersion]!++;
    records[record + nextInBucket] = this.#firstFree;
    this.#firstFree = index;
    this.#shared--;
  }

  /** Doubles the buckets. The bound on sets keeps this below a few milliseconds. */
  #rehash(): void {
    const records = this.#records.words;
    const old = this.#buckets;
    this.#buckets = new Uint32Array(old.length * 2).fill(none);
    for (let index of old) {
      while (index !== none) {
        const record = index * recordWords;
        const next = records[record + nextInBucket]!;
        const bucket = records[record + signatureLow]! & (this.#buckets.length - 1);
        records[record + nextInBucket] = this.#buckets[bucket]!;
        this.#buckets[bucket] = index;
        index = next;
      }
    }
  }

  #versionOf(set: number): number {
    return set < this.firstShared ? 0 : this.#records.words[(set - this.firstShared) * recordWords + recordVersion]!;
  }
}

/** Words of an entry: set, its version, operation, result, its version. */
const entryWords = 5;
const entries = 2_048;

/**
 * Remembers which set results from another one by adding or removing a holder. Set numbers are reused, so each is
 * stored with its version.
 */
class TransitionCache {
  /** The version of the result that `find` returned. */
  resultVersion = 0;
  readonly #words = new Uint32Array(entries * entryWords).fill(none);

  get byteLength(): number {
    return this.#words.byteLength;
  }

  /** @returns the remembered result, which may be outdated by its version; 0 for none */
  find(set: number, version: number, operation: number): number {
    const words = this.#words;
    const at = placeOf(set, operation);
    if (words[at] !== set || words[at + 1] !== version || words[at + 2] !== operation) return 0;
    this.resultVersion = words[at + 4]!;
    return words[at + 3]!;
  }

  /** Remembers the result of a transition; replaces any other in the same slot. */
  remember(set: number, version: number, operation: number, result: { set: number; version: number }): void {
    const words = this.#words;
    const at = placeOf(set, operation);
    words[at] = set;
    words[at + 1] = version;
    words[at + 2] = operation;
    words[at + 3] = result.set;
    words[at + 4] = result.version;
  }
}

function placeOf(set: number, operation: number): number {
  const hash = Math.imul(Math.imul(set, 0x9e3779b1) ^ operation, 0x85ebca6b) >>> 0;
  return (hash >>> 21) * entryWords;
}

/** The bits that are set in a word of 32. */
export function bitCount(bits: number): number {
  let sums = bits - ((bits >>> 1) & 0x5555_5555);
  sums = (sums & 0x3333_3333) + ((sums >>> 2) & 0x3333_3333);
  return Math.imul((sums + (sums >>> 4)) & 0x0f0f_0f0f, 0x0101_0101) >>> 24;
}
