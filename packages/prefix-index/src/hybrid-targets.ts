import type { PrefixMatches } from "./prefix-matches.ts";
import { HolderTable, type HolderTableOptions } from "./table/holder-table.ts";
import { slotWords } from "./table/slot-table.ts";
import { TargetsByBlock } from "./targets-by-block.ts";
import { tier, tierNames } from "./tiers.ts";

const minFilterBits = 65_536;
/** Bits per point: about one probe of 32 for a block that is none finds its bit set. */
const filterBitsPerPoint = 32;
/** Points added since the filter was filled, per point in the table, that make it worth filling again. */
const staleFactor = 2;

interface HybridTargetsOptions extends Pick<HolderTableOptions, "maxBlocks" | "maxSets"> {
  readonly maxTargets: number;
}

/**
 * Targets with hybrid models, and their resume points. A lookup shortens what they hold of a chain to their last point.
 * Points are few, and mostly near the end of what is held, so the chain is walked backwards, for all targets together. A
 * filter of a few bits per point answers for most blocks that are none.
 */
export class HybridTargets {
  readonly table: HolderTable;
  /** 1 for a target with a hybrid model: it continues only after its resume points. */
  readonly #isHybrid: Uint8Array;
  #count = 0;
  readonly #ends: TargetsByBlock;
  readonly #targets: Int32Array;
  #filter = new Uint32Array(minFilterBits / 32);
  #added = 0;

  constructor({ maxTargets, maxBlocks, maxSets }: HybridTargetsOptions) {
    this.table = new HolderTable({ maxHolders: maxTargets, maxBlocks, maxSets, maxHoles: 0 });
    this.#isHybrid = new Uint8Array(maxTargets);
    this.#ends = new TargetsByBlock(maxTargets);
    this.#targets = new Int32Array(maxTargets);
  }

  get byteLength(): number {
    return this.table.byteLength + this.#filter.byteLength;
  }

  has(target: number): boolean {
    return this.#isHybrid[target] === 1;
  }

  /** 1 for each target with a hybrid model; undefined while there is none. */
  get flags(): Readonly<Uint8Array> | undefined {
    return this.#count > 0 ? this.#isHybrid : undefined;
  }

  /** @see PrefixIndex.storeFacts */
  store(target: number, words: Uint32Array, from: number, to: number): number {
    const stored = this.table.store(target, words, from, to);
    this.#mark(words, from, to);
    this.#note(target);
    return stored;
  }

  /** @see PrefixIndex.removeFacts */
  remove(target: number, words: Uint32Array, from: number, to: number): number {
    const removed = this.table.remove(target, words, from, to);
    this.#note(target);
    return removed;
  }

  /** Voids all points of a target. */
  clear(target: number): void {
    this.table.clear(target);
    this.#note(target);
  }

  /** Shortens what hybrid targets hold of a chain to their last resume point in it. */
  limit(words: Uint32Array, out: PrefixMatches): void {
    if (this.#count === 0) return;
    const ends = this.#ends;
    let block = 0;
    for (let index = 0; index < out.count; index++) {
      const target = out.targets[index]!;
      const held = out.factBlocks[target]!;
      if (this.#isHybrid[target] === 0 || held === 0) continue;
      ends.add(target, held);
      if (held > block) block = held;
    }
    let active = 0;
    for (let next = block; next > 0 || active > 0; ) {
      block = active === 0 ? next : lastMarked(this.#filter, words, next, block);
      if (block > next) active = this.#end(words, block--, active, out);
      else if (next > 0) {
        active = ends.take(next, this.#targets, active);
        next = Math.max(0, ends.lastUpTo(next));
      } else break;
    }
    for (let index = 0; index < active; index++) shorten(out, this.#targets[index]!, 0);
  }

  /** Ends the walk for the targets that can resume after this many blocks. @returns how many go on */
  #end(words: Uint32Array, blocks: number, active: number, out: PrefixMatches): number {
    const set = this.table.setOf(words, blocks - 1);
    if (set === 0) return active;
    let left = active;
    for (let index = 0; index < left; ) {
      const target = this.#targets[index]!;
      if (!this.table.holds(set, target)) index++;
      else {
        shorten(out, target, blocks);
        this.#targets[index] = this.#targets[--left]!;
      }
    }
    return left;
  }

  #note(target: number): void {
    const isHybrid = this.table.blockCount(target) > 0 ? 1 : 0;
    this.#count += isHybrid - this.#isHybrid[target]!;
    this.#isHybrid[target] = isHybrid;
  }

  /** The table got the blocks `from` to `to` (exclusive) of `words`. */
  #mark(words: Uint32Array, from: number, to: number): void {
    this.#added += to - from;
    const { count } = this.table.slots;
    if (count * filterBitsPerPoint > this.#filter.length * 32 || this.#added > minFilterBits + staleFactor * count) {
      this.#fill(count);
      return;
    }
    for (let block = from; block < to; block++) this.#set(words[2 * block]!);
  }

  #fill(count: number): void {
    const bits = Math.max(minFilterBits, 2 ** Math.ceil(Math.log2(2 * count * filterBitsPerPoint)));
    this.#filter = new Uint32Array(Math.min(2 ** 31, bits) / 32);
    this.#added = 0;
    const { words } = this.table.slots;
    for (let at = 0; at < words.length; at += slotWords) if (words[at + 2] !== 0) this.#set(words[at]!);
  }

  #set(low: number): void {
    this.#filter[(low >>> 5) & (this.#filter.length - 1)]! |= 1 << (low & 31);
  }
}

/**
 * The last of the blocks after `from` up to `to` whose bit is set, `from` if none is. The first block of a chain is 1.
 * Four at a time, because few bits are set.
 */
function lastMarked(filter: Uint32Array, words: Uint32Array, from: number, to: number): number {
  const mask = filter.length - 1;
  let block = to;
  for (; block - from >= 4; block -= 4) {
    const one = words[2 * block - 2]!;
    const two = words[2 * block - 4]!;
    const three = words[2 * block - 6]!;
    const four = words[2 * block - 8]!;
    const bits =
      (filter[(one >>> 5) & mask]! >>> one) |
      (filter[(two >>> 5) & mask]! >>> two) |
      (filter[(three >>> 5) & mask]! >>> three) |
      (filter[(four >>> 5) & mask]! >>> four);
    if ((bits & 1) === 1) break;
  }
  for (; block > from; block--) {
    const low = words[2 * block - 2]!;
    if (((filter[(low >>> 5) & mask]! >>> low) & 1) === 1) break;
  }
  return block;
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
