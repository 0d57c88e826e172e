import type { PrefixMatches } from "./prefix-matches.ts";
import type { HolderTable } from "./table/holder-table.ts";
import { slotWords } from "./table/slot-table.ts";
import { tier, tierNames } from "./tiers.ts";

const insertionSorted = 32;
const minFilterBits = 4_096;
/** Bits per block: about one probe of 16 for a block that is not in the table finds its bit set. */
const filterBitsPerBlock = 16;
/** Blocks added since the filter was filled, per block in the table, that make it worth filling again. */
const staleFactor = 2;

/**
 * Shortens what targets with hybrid models hold of a chain to their last resume point. Points are few, and mostly near
 * the end of what is held, so the chain is walked backwards, for all targets together. A filter of a few bits per point
 * answers for most blocks that are none.
 */
export class ResumeWalk {
  readonly #points: HolderTable;
  /** Held blocks and target in one number, so that sorting orders by what is held. */
  readonly #pending: Float64Array;
  readonly #targets: Int32Array;
  readonly #maxTargets: number;
  #filter = new Uint32Array(minFilterBits / 32);
  #added = 0;

  constructor(points: HolderTable, maxTargets: number) {
    this.#points = points;
    this.#maxTargets = maxTargets;
    this.#pending = new Float64Array(maxTargets);
    this.#targets = new Int32Array(maxTargets);
  }

  get byteLength(): number {
    return this.#filter.byteLength;
  }

  /** The table got the blocks `from` to `to` (exclusive) of `words`. */
  added(words: Uint32Array, from: number, to: number): void {
    this.#added += to - from;
    const { count } = this.#points.slots;
    if (count * filterBitsPerBlock > this.#filter.length * 32 || this.#added > minFilterBits + staleFactor * count) {
      this.#fill(count);
      return;
    }
    for (let block = from; block < to; block++) this.#set(words[2 * block]!);
  }

  /** @param isHybrid by target: 1 if it continues only after resume points */
  limit(words: Uint32Array, isHybrid: Uint8Array, out: PrefixMatches): void {
    let left = 0;
    for (let index = 0; index < out.count; index++) {
      const target = out.targets[index]!;
      const held = out.factBlocks[target]!;
      if (isHybrid[target] === 1 && held > 0) this.#pending[left++] = held * this.#maxTargets + target;
    }
    sortFirst(this.#pending, left);
    const filter = this.#filter;
    const mask = filter.length * 32 - 1;
    let active = 0;
    let block = 0;
    while (left > 0 || active > 0) {
      const next = left > 0 ? Math.floor(this.#pending[left - 1]! / this.#maxTargets) : 0;
      if (active === 0) block = next;
      for (; block > next; block--) {
        const bit = words[2 * block - 2]! & mask;
        if ((filter[bit >>> 5]! & (1 << (bit & 31))) === 0) continue;
        active = this.#end(words, block, active, out);
        if (active === 0) break;
      }
      if (block > next) continue;
      if (left === 0) break;
      this.#targets[active++] = this.#pending[--left]! % this.#maxTargets;
    }
    for (let index = 0; index < active; index++) shorten(out, this.#targets[index]!, 0);
  }

  /** Ends the walk for the targets that can resume after this many blocks. @returns how many go on */
  #end(words: Uint32Array, blocks: number, active: number, out: PrefixMatches): number {
    const set = this.#points.setOf(words, blocks - 1);
    if (set === 0) return active;
    let left = active;
    for (let index = 0; index < left; ) {
      const target = this.#targets[index]!;
      if (!this.#points.holds(set, target)) index++;
      else {
        shorten(out, target, blocks);
        this.#targets[index] = this.#targets[--left]!;
      }
    }
    return left;
  }

  #fill(count: number): void {
    const bits = Math.max(minFilterBits, 2 ** Math.ceil(Math.log2(2 * count * filterBitsPerBlock)));
    this.#filter = new Uint32Array(Math.min(2 ** 31, bits) / 32);
    this.#added = 0;
    const { words } = this.#points.slots;
    for (let at = 0; at < words.length; at += slotWords) if (words[at + 2] !== 0) this.#set(words[at]!);
  }

  #set(low: number): void {
    const bit = low & (this.#filter.length * 32 - 1);
    this.#filter[bit >>> 5]! |= 1 << (bit & 31);
  }
}

/** Sorts the first numbers, ascending. For a few, a call of the engine's own sort takes longer than the sorting. */
function sortFirst(numbers: Float64Array, count: number): void {
  if (count > insertionSorted) {
    numbers.subarray(0, count).sort();
    return;
  }
  for (let index = 1; index < count; index++) {
    const number = numbers[index]!;
    let at = index;
    for (; at > 0 && numbers[at - 1]! > number; at--) numbers[at] = numbers[at - 1]!;
    numbers[at] = number;
  }
}

function shorten(out: PrefixMatches, target: number, blocks: number): void {
  if (out.factBlocks[target] === blocks) return;
  let excess = out.factBlocks[target]! - Math.max(blocks, out.gpuBlocks[target]!);
  out.gpuBlocks[target] = Math.min(blocks, out.gpuBlocks[target]!);
  out.factBlocks[target] = blocks;
  out.cpuBlocks[target] = Math.min(blocks, out.cpuBlocks[target]!);
  // Which of the blocks after those on the GPU are in which tier is not known here: the slowest are left out first.
  for (let slow = tierNames.length - 1; slow >= tier.gpu && excess > 0; slow--) {
    const tierBlocks = out.tierBlocks[slow]!;
    const left = Math.max(0, tierBlocks[target]! - excess);
    excess -= tierBlocks[target]! - left;
    tierBlocks[target] = left;
  }
}
