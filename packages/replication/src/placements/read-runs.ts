import { RecencyMap } from "@espalier/common";
import type { ChainRun } from "./placement-record.ts";
import { maxRunLinks, referenceWindowMs } from "./written-runs.ts";

/** Bytes of the runs of one journal. */
const maxRunBytesPerJournal = 33_554_432;
/** What a run takes beside its blocks, about: a typed array's own objects, the run and its place in the map. */
const runOverheadBytes = 384;
/** No writer refers to a run that is older than its window; a reader hears of both late, and not equally late. */
const forgetAfterMs = 2 * referenceWindowMs;

interface ReadRun extends ChainRun {
  readonly number: number;
  readonly blocks: number;
  readonly links: number;
  readonly arrivedMs: number;
}

/** The runs of another router's journal, to which later ones refer. */
export class ReadRuns {
  /** In the order of their numbers. */
  readonly #runs = new RecencyMap<number, ReadRun>();
  readonly #maxBytes: number;
  #byteLength = 0;

  constructor(maxBytes: number = maxRunBytesPerJournal) {
    this.#maxBytes = maxBytes;
  }

  get byteLength(): number {
    return this.#byteLength;
  }

  /**
   * Writes the chain of a run to the beginning of `into`, and remembers the run.
   *
   * @param into room for `maxRunBlocks` blocks
   * @returns how many blocks it has; 0 when what it refers to is not known
   */
  resolve(run: ChainRun, into: Uint32Array, nowMs: number): number {
    const parent = this.#parentOf(run);
    if (run.parent !== undefined && !parent) return 0;
    const links = (parent?.links ?? 0) + 1;
    const blocks = run.shared + run.words.length / 2;
    if (run.number !== undefined && links > maxRunLinks) return 0;
    into.set(run.words, run.shared * 2);
    if (!this.#fill(parent, run.shared, into)) return 0;
    if (run.number !== undefined) {
      // Written out: what is spread gets a hidden class of its own each time, and thousands of these are kept.
      const { number, parent: parentNumber, shared, words } = run;
      this.#add({ number, parent: parentNumber, shared, words, blocks, links, arrivedMs: nowMs }, nowMs);
    }
    return blocks;
  }

  /** Forgets the oldest run. @returns false when there is none */
  forgetOldest(): boolean {
    const oldest = this.#runs.oldest();
    if (!oldest) return false;
    this.#runs.deleteOldest();
    this.#byteLength -= bytesOf(oldest[1]);
    return true;
  }

  #parentOf({ parent }: ChainRun): ReadRun | undefined {
    return parent === undefined ? undefined : this.#runs.get(parent);
  }

  /** Writes the first `end` blocks of a run. A run refers to lower numbers only, so this comes to an end. */
  #fill(run: ReadRun | undefined, end: number, into: Uint32Array): boolean {
    let left = end;
    for (let each = run; left > 0; each = this.#parentOf(each)) {
      if (!each || each.blocks < left) return false;
      if (left <= each.shared) continue;
      into.set(each.words.subarray(0, (left - each.shared) * 2), each.shared * 2);
      left = each.shared;
    }
    return true;
  }

  #add(run: ReadRun, nowMs: number): void {
    const known = this.#runs.get(run.number);
    if (known) this.#byteLength -= bytesOf(known);
    this.#runs.set(run.number, run);
    this.#byteLength += bytesOf(run);
    while (this.#byteLength > this.#maxBytes || this.#isOldestDue(nowMs)) this.forgetOldest();
  }

  #isOldestDue(nowMs: number): boolean {
    const oldest = this.#runs.oldest();
    return oldest !== undefined && nowMs - oldest[1].arrivedMs > forgetAfterMs;
  }
}

function bytesOf({ words }: ReadRun): number {
  return words.byteLength + runOverheadBytes;
}
