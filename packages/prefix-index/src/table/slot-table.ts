import { GrowableWords } from "./word-pool.ts";

/** Words of a slot: low word of the hash, high word, and value; a value of zero marks an empty slot. */
export const slotWords = 3;

const twoTo32 = 0x1_0000_0000;
const loadLimit = 0.8;
const shrinkBelowLoad = 0.3;
const shrunkLoad = 0.6;
const minSlots = 256;
/** Fewest slots of a stretch, so that finding it costs little compared to its use. */
const stretchSlots = 512;
/** Words of a cache line; the slots that one access reads and moves begin in one line and usually end in the next. */
const lineWords = 16;
/** Slots after the last home, for runs that begin near the end. */
const tailSlots = 64;
/** A migration visits this many slots per added key, enough to end before the next one must begin. */
const migratedSlotsPerKey = 16;
/** Freeing memory copies what is left. It is done only if the copy is at most this large. */
const maxReleaseCopyBytes = 16 * 1_024 * 1_024;
/** A table of at most this many slots grows to an expected size in one step, which takes a few milliseconds. */
const maxMovedAtOnceSlots = 65_536;

/**
 * Open addressing with linear probing over 12-byte slots {low, high, value}. The home of a hash grows with its low
 * word, and slots are ordered by low word. So the table changes its size in place, slice by slice: growing moves the
 * highest hashes up first, shrinking moves the lowest down first. Meanwhile hashes whose low word is below `boundary`
 * have their home by `scaleLow`, the others by `scaleHigh`. There is no wrap-around; the last physical slot is always
 * empty.
 */
export class SlotTable {
  words: Uint32Array;
  /** Keys in the table. */
  count = 0;
  boundary = 0;
  scaleLow: number;
  scaleHigh: number;
  /** The run that `runBelow` found: its first slot, the slot after its last, and the smallest low word it covers. */
  runStart = 0;
  runEnd = 0;
  runBound = 0;
  readonly #maxSlots: number;
  #memory: GrowableWords;
  #size = minSlots;
  /** The table does not shrink below this many slots. */
  #expected = 0;
  #migration: "none" | "growing" | "shrinking" = "none";
  #scratch = new Uint32Array(1_024 * slotWords);
  /** Keeps the prefetching reads of slots from being optimised away. */
  #touched = 0;

  /** @param maxKeys bound on keys */
  constructor(maxKeys: number) {
    this.#maxSlots = Math.max(minSlots, Math.ceil(maxKeys / loadLimit));
    this.#memory = this.#reserve(minSlots);
    this.words = this.#memory.words;
    this.scaleLow = minSlots / twoTo32;
    this.scaleHigh = this.scaleLow;
  }

  get byteLength(): number {
    return this.words.length * 4;
  }

  /** Homes in the present layout, or in the one that the table migrates to. */
  get size(): number {
    return this.#size;
  }

  /** The index of the first word of a hash's home slot. */
  homeOf(low: number): number {
    return Math.imul(low * (low < this.boundary ? this.scaleLow : this.scaleHigh), slotWords);
  }

  /** @returns the value of a hash, 0 if it is absent */
  valueOf(low: number, high: number): number {
    const at = findSlot(this.words, this.homeOf(low), low, high);
    return at < 0 ? 0 : this.words[at + 2]!;
  }

  /** Reads the home slots of the hashes `from` to `to` (exclusive) of `keys`, so that their cache misses overlap. */
  touch(keys: Uint32Array, from: number, to: number): void {
    const { words, boundary, scaleLow, scaleHigh } = this;
    let sum = 0;
    for (let at = from * 2; at < to * 2; at += 2) {
      const low = keys[at]!;
      const home = Math.imul(low * (low < boundary ? scaleLow : scaleHigh), slotWords);
      sum ^= words[home]! ^ words[home + lineWords]!;
    }
    this.#touched ^= sum;
  }

  /**
   * Makes space for keys to be added, and does a bounded slice of a migration.
   *
   * @returns false if that many keys are beyond the maximum
   */
  reserve(keys: number): boolean {
    if (this.#migration !== "none") this.migrate(keys * migratedSlotsPerKey);
    if (this.count + keys <= this.#size * loadLimit) return true;
    // The slices end a migration in time, but several reservations without added keys in between may need more.
    while (this.#migration !== "none") this.migrate(this.#size);
    if (this.#size >= this.#maxSlots) return this.count + keys <= this.#maxSlots * loadLimit;
    const wanted = Math.max(grownSlots(this.#size), Math.ceil((this.count + keys) / loadLimit));
    this.#begin("growing", Math.min(this.#maxSlots, wanted));
    this.migrate(keys * migratedSlotsPerKey);
    return this.count + keys <= this.#size * loadLimit;
  }

  /** Reserves space for this many keys; a small table gets it at once. 0 ends the reservation. */
  expect(keys: number): void {
    this.#expected = Math.min(this.#maxSlots, Math.ceil(keys / loadLimit));
    if (this.#expected <= this.#size || this.#size > maxMovedAtOnceSlots || this.#migration !== "none") return;
    this.#begin("growing", this.#expected);
    this.migrate(this.#expected);
  }

  /** Inserts a new key before the slot that `findSlot` returned. May replace `words`. */
  put(at: number, low: number, high: number, value: number): void {
    const filled = insertSlot(this.words, at, { low, high, value });
    if (filled + slotWords === this.words.length) this.lengthen();
    this.count++;
  }

  /** Empties a slot and closes the gap. */
  erase(at: number): void {
    const { words, boundary, scaleLow, scaleHigh } = this;
    let gap = at;
    for (let next = at + slotWords; words[next + 2] !== 0; next += slotWords) {
      const low = words[next]!;
      // Keys are sorted, so after a key at its home, the homes of all others are after the gap, too.
      if (Math.imul(low * (low < boundary ? scaleLow : scaleHigh), slotWords) > gap) break;
      words[gap] = low;
      words[gap + 1] = words[next + 1]!;
      words[gap + 2] = words[next + 2]!;
      gap = next;
    }
    words[gap] = 0;
    words[gap + 1] = 0;
    words[gap + 2] = 0;
    this.count--;
  }

  /**
   * Does a slice of a migration, or begins to shrink if little is left.
   *
   * @param isEven whether keys are spread evenly over the table; otherwise the fuller part might not fit into a size
   * that suffices for the whole
   */
  maintain(budgetSlots: number, isEven: boolean): void {
    if (this.#migration !== "none") this.migrate(budgetSlots);
    else if (isEven && this.#size > Math.max(minSlots, this.#expected) && this.count < this.#size * shrinkBelowLoad) {
      this.#begin("shrinking", Math.max(minSlots, this.#expected, Math.ceil(this.count / shrunkLoad)));
      this.migrate(budgetSlots);
    }
  }

  get migrating(): boolean {
    return this.#migration !== "none";
  }

  /**
   * Finds the highest stretch of slots with hashes below a bound, and writes it to `runStart`, `runEnd` and `runBound`.
   * It contains every key whose low word is in [runBound, bound). It consists of whole runs of occupied slots and the
   * empty ones between them, and may contain other keys too.
   *
   * @param bound exclusive, 1 to 2^32
   */
  runBelow(bound: number): void {
    const { words } = this;
    const home = this.homeOf(bound - 1) / slotWords;
    let end = home;
    while (words[end * slotWords + 2] !== 0) end++;
    let slot = Math.max(-1, home - stretchSlots);
    while (slot >= 0 && words[slot * slotWords + 2] !== 0) slot--;
    this.runStart = slot + 1;
    this.runEnd = end;
    this.runBound = this.runStart === 0 ? 0 : Math.min(bound - 1, firstLowIn(this, this.runStart));
  }

  /** Migrates at least `budgetSlots` slots, and the rest of the stretch that contains the last of them. */
  migrate(budgetSlots: number): void {
    let left = budgetSlots;
    while (left > 0 && this.#migration !== "none") {
      left -= this.#migration === "growing" ? this.#growRun() : this.#shrinkRun();
    }
  }

  #begin(migration: "growing" | "shrinking", size: number): void {
    this.#migration = migration;
    const scale = size / twoTo32;
    if (migration === "growing") {
      this.#memory.ensure((size + tailSlots) * slotWords);
      this.words = this.#memory.words;
      this.scaleHigh = scale;
      this.boundary = twoTo32;
    } else {
      this.scaleLow = scale;
      this.boundary = 0;
    }
    this.#size = size;
  }

  #end(): void {
    const shrunk = this.#migration === "shrinking";
    this.#migration = "none";
    this.scaleLow = this.#size / twoTo32;
    this.scaleHigh = this.scaleLow;
    this.boundary = 0;
    if (shrunk) this.#release();
  }

  /** Moves the highest stretch of the old layout up to the new one. Returns the slots visited. */
  #growRun(): number {
    const before = this.homeOf(this.boundary - 1) / slotWords;
    this.runBelow(this.boundary);
    const { runStart, runEnd, runBound, scaleHigh } = this;
    const lowestTarget = (runBound * scaleHigh) >>> 0;
    this.boundary = runBound;
    if (lowestTarget < runEnd) this.#reinsert(runStart, runEnd);
    else {
      // Nothing can land in the stretch itself, so every key is moved directly.
      this.#moveUp(runStart, runEnd, lowestTarget);
      this.words.fill(0, runStart * slotWords, runEnd * slotWords);
    }
    if (runBound === 0) this.#end();
    return Math.max(1, before - runStart + 1);
  }

  /**
   * Copies keys of a stretch to their slots in the new layout, which are all after it: each goes to its home or after
   * the previous key. Whether a slot is empty, or a home free, cannot be predicted, so the loop has no branch for it:
   * for an empty slot it writes zeroes where the next key goes.
   */
  #moveUp(start: number, end: number, lowestTarget: number): void {
    const { words, scaleHigh } = this;
    const last = words.length - slotWords;
    let to = (lowestTarget - 1) * slotWords;
    for (let at = start * slotWords; at < end * slotWords; at += slotWords) {
      const low = words[at]!;
      const value = words[at + 2]! | 0;
      const behind = to + slotWords;
      const below = (Math.imul(low * scaleHigh, slotWords) - behind) | 0;
      const place = (behind + (below & ~(below >> 31))) | 0;
      if (place >= last || words[place + 2] !== 0) {
        this.#putAll(words, at, end * slotWords);
        return;
      }
      words[place] = low;
      words[place + 1] = words[at + 1]!;
      words[place + 2] = value;
      to = (to + ((place - to) & ((value | -value) >> 31))) | 0;
    }
  }

  /** Moves the lowest stretch of the old layout down to the new one. Returns the slots visited. */
  #shrinkRun(): number {
    const { words } = this;
    const slots = words.length / slotWords;
    let start = this.homeOf(this.boundary) / slotWords;
    let end = Math.min(slots, start + stretchSlots);
    while (end < slots && words[end * slotWords + 2] !== 0) end++;
    while (start > 0 && words[(start - 1) * slotWords + 2] !== 0) start--;
    this.boundary = end === slots ? twoTo32 : Math.max(this.boundary, firstLowIn(this, end));
    this.#reinsert(start, end);
    if (this.boundary >= twoTo32) this.#end();
    return end - start;
  }

  /** Adds slots after the last, so that the last stays empty. */
  lengthen(): void {
    this.#memory.ensure(this.words.length + tailSlots * slotWords);
    this.words = this.#memory.words;
  }

  /** Removes whole runs, and inserts their keys again by their present homes. */
  #reinsert(start: number, end: number): void {
    const length = (end - start) * slotWords;
    if (this.#scratch.length < length) this.#scratch = new Uint32Array(length * 2);
    const scratch = this.#scratch;
    scratch.set(this.words.subarray(start * slotWords, end * slotWords));
    this.words.fill(0, start * slotWords, end * slotWords);
    this.#putAll(scratch, 0, length);
  }

  /** Inserts keys that are already counted, by their present homes. */
  #putAll(slots: Uint32Array, from: number, to: number): void {
    for (let at = from; at < to; at += slotWords) {
      const value = slots[at + 2]!;
      if (value === 0) continue;
      const low = slots[at]!;
      const high = slots[at + 1]!;
      this.put(~findSlot(this.words, this.homeOf(low), low, high), low, high, value);
      this.count--;
    }
  }

  /** Frees memory after shrinking, if what is left is comparatively small and quickly copied. */
  #release(): void {
    let used = this.#size;
    while (this.words[used * slotWords + 2] !== 0) used++;
    const wordsLeft = (Math.max(used, this.#size) + tailSlots) * slotWords;
    if (wordsLeft * 4 > maxReleaseCopyBytes || wordsLeft * 2 > this.words.length) return;
    const memory = this.#reserve(wordsLeft / slotWords - tailSlots);
    memory.words.set(this.words.subarray(0, used * slotWords));
    this.#memory = memory;
    this.words = memory.words;
  }

  #reserve(slots: number): GrowableWords {
    // All keys would fit even if they all began at the last home; this reserves only addresses.
    return new GrowableWords((2 * this.#maxSlots + 2 * tailSlots) * slotWords, (slots + tailSlots) * slotWords);
  }
}

/**
 * Looks for a hash from its home onwards, in slots sorted by low word.
 *
 * @param home index of the first word of the home slot
 * @returns the index of the slot's first word; if absent, `~index` of the slot before which it belongs
 */
export function findSlot(words: Uint32Array, home: number, low: number, high: number): number {
  for (let at = home; ; at += slotWords) {
    if (words[at + 2] === 0) return ~at;
    const present = words[at]!;
    if (present < low) continue;
    if (present > low) return ~at;
    if (words[at + 1] === high) return at;
  }
}

/**
 * Writes a key to a slot, and moves what is there, and in the occupied slots right after it, up by one.
 *
 * @returns the index of the slot that is no longer empty
 */
export function insertSlot(words: Uint32Array, at: number, key: { low: number; high: number; value: number }): number {
  let { low, high, value } = key;
  for (let to = at; ; to += slotWords) {
    const nextLow = words[to]!;
    const nextHigh = words[to + 1]!;
    const nextValue = words[to + 2]!;
    words[to] = low;
    words[to + 1] = high;
    words[to + 2] = value;
    if (nextValue === 0) return to;
    low = nextLow;
    high = nextHigh;
    value = nextValue;
  }
}

/** Maps low words to homes: by one scale below a boundary, by another from there on. */
interface HomeScales {
  readonly boundary: number;
  readonly scaleLow: number;
  readonly scaleHigh: number;
}

/** The smallest low word whose home is at or above a slot; 2^32 when there is none. */
function firstLowIn({ boundary, scaleLow, scaleHigh }: HomeScales, slot: number): number {
  const below = firstLow(slot, scaleLow);
  return below < boundary ? below : Math.min(twoTo32, Math.max(boundary, firstLow(slot, scaleHigh)));
}

/**
 * The smallest low word whose home, by a scale in slots per low word, is at or above a slot. 2^32 or more means none.
 */
function firstLow(slot: number, scale: number): number {
  let low = Math.ceil(slot / scale);
  while (low > 0 && Math.floor((low - 1) * scale) >= slot) low--;
  while (Math.floor(low * scale) < slot) low++;
  return low;
}

/** Below this many slots, 6 MB, a table grows in large steps; above, fine steps keep it below 18 bytes per key. */
const fineGrowthSlots = 524_288;
const largeGrowth = 1.5;
const fineGrowth = 1.18;

/** The number of slots that a table of this many grows to. */
function grownSlots(slots: number): number {
  return Math.ceil(slots * (slots < fineGrowthSlots ? largeGrowth : fineGrowth));
}
