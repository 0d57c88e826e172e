import { slotWords } from "./find-slot.ts";
import type { SlotTable } from "./slot-table.ts";

const twoTo32 = 0x1_0000_0000;
/**
 * Keys that come from one range crowd where another table is to take them, so ranges are small; but each costs a cache
 * miss.
 */
const slotsPerRange = 64;
const goldenRatio = 0.618_033_988_75;

/**
 * All low words in ranges of about as many slots, in an order in which any number of successive ranges is spread evenly
 * over all of them: in steps of about the golden ratio of their number.
 */
export class KeyRanges {
  /** The first low word of the present range, and the first behind it. */
  from = 0;
  to = 0;
  readonly #count: number;
  readonly #stride: number;
  #next = 0;
  #left: number;

  /** @param slots of the table that is to be read; it may change its size meanwhile */
  constructor(slots: number) {
    this.#count = Math.ceil(slots / slotsPerRange);
    this.#left = this.#count;
    let stride = Math.max(1, Math.round(this.#count * goldenRatio));
    while (greatestCommonDivisor(stride, this.#count) > 1) stride++;
    this.#stride = stride;
  }

  get isDone(): boolean {
    return this.#left === 0;
  }

  /** Goes on to a range that has not been the present one yet. */
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

function greatestCommonDivisor(one: number, other: number): number {
  return other === 0 ? one : greatestCommonDivisor(other, one % other);
}

/**
 * Calls back for every key with a low word in a range, with the index of its slot's first word.
 *
 * @returns slots visited
 */
export function visitRange(table: SlotTable, from: number, to: number, visit: (at: number) => void): number {
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
