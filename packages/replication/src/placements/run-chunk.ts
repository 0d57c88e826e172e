/** A chunk has room for one run per so many words: of shorter ones words stay unused, of longer ones places of runs. */
const wordsPerRun = 16;
/** What a run takes beside its words. */
const bytesPerRun = 25;

/** Runs of a journal that came one after the other, in one piece of memory. */
export class RunChunk {
  readonly wordCapacity: number;
  readonly byteLength: number;
  /** Ascending. */
  readonly #numbers: Float64Array;
  /** -1: none. */
  readonly #parents: Float64Array;
  /** Where their words end; they begin where those of the run before end. */
  readonly #ends: Uint32Array;
  readonly #shared: Uint32Array;
  readonly #links: Uint8Array;
  readonly #words: Uint32Array;
  #length = 0;
  /** When the last of them came. */
  lastMs = Number.NEGATIVE_INFINITY;

  constructor(wordCapacity: number) {
    const runs = Math.ceil(wordCapacity / wordsPerRun);
    this.wordCapacity = wordCapacity;
    this.byteLength = wordCapacity * 4 + runs * bytesPerRun;
    this.#numbers = new Float64Array(runs);
    this.#parents = new Float64Array(runs);
    this.#ends = new Uint32Array(runs);
    this.#shared = new Uint32Array(runs);
    this.#links = new Uint8Array(runs);
    this.#words = new Uint32Array(wordCapacity);
  }

  /** The lowest number; Infinity in an empty chunk. */
  get first(): number {
    return this.#length === 0 ? Number.POSITIVE_INFINITY : this.#numbers[0]!;
  }

  /** The highest number; -Infinity in an empty chunk. */
  get last(): number {
    return this.#length === 0 ? Number.NEGATIVE_INFINITY : this.#numbers[this.#length - 1]!;
  }

  hasRoomFor(words: number): boolean {
    return this.#length < this.#numbers.length && this.#startOf(this.#length) + words <= this.wordCapacity;
  }

  /** @param run whose number is higher than all before, and for which there is room */
  add(run: StoredRun, words: Uint32Array): void {
    const at = this.#length;
    const start = this.#startOf(at);
    this.#numbers[at] = run.number;
    this.#parents[at] = run.parent ?? -1;
    this.#shared[at] = run.shared;
    this.#links[at] = run.links;
    this.#words.set(words, start);
    this.#ends[at] = start + words.length;
    this.#length = at + 1;
  }

  /** The place of the run of a number; -1 when it is not here. */
  find(number: number): number {
    let low = 0;
    let high = this.#length - 1;
    while (low <= high) {
      const middle = (low + high) >>> 1;
      const found = this.#numbers[middle]!;
      if (found === number) return middle;
      if (found < number) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  parentAt(at: number): number {
    return this.#parents[at]!;
  }

  sharedAt(at: number): number {
    return this.#shared[at]!;
  }

  linksAt(at: number): number {
    return this.#links[at]!;
  }

  /** Blocks of the whole chain. */
  blocksAt(at: number): number {
    return this.#shared[at]! + (this.#ends[at]! - this.#startOf(at)) / 2;
  }

  /** Writes the run's own blocks up to block `end` (exclusive) of its chain to their places in `into`. */
  copy(at: number, end: number, into: Uint32Array): void {
    const start = this.#startOf(at);
    const shared = this.#shared[at]!;
    into.set(this.#words.subarray(start, start + (end - shared) * 2), shared * 2);
  }

  #startOf(at: number): number {
    return at === 0 ? 0 : this.#ends[at - 1]!;
  }
}

export interface StoredRun {
  readonly number: number;
  readonly parent: number | undefined;
  readonly shared: number;
  readonly links: number;
}
