import type { ChainRun } from "./placement-item.ts";
import { maxRunLinks, referenceWindowMs } from "./written-runs.ts";

/**
 * A chunk has capacity for one run per so many words. Shorter runs leave words unused, longer ones leave places of
 * runs.
 */
const wordsPerRun = 16;
/** Bytes of a run next to its words. */
const bytesPerRun = 25;

/** Consecutive runs of a journal, in one piece of memory. */
class RunChunk {
  readonly wordCapacity: number;
  readonly byteLength: number;
  /** Ascending. */
  readonly #numbers: Float64Array;
  /** -1: none. */
  readonly #parents: Float64Array;
  /** Ends of their words; each run begins at the end of the one before. */
  readonly #ends: Uint32Array;
  readonly #shared: Uint32Array;
  readonly #links: Uint8Array;
  readonly #words: Uint32Array;
  #length = 0;
  /** When the last of them arrived. */
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

  hasCapacityFor(words: number): boolean {
    return this.#length < this.#numbers.length && this.#startOf(this.#length) + words <= this.wordCapacity;
  }

  /** @param run whose number is higher than all before, and for which there is capacity */
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

  /** The place of the run with a number; -1 when it is not here. */
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

/** Bytes of the runs of one journal. */
const maxRunBytesPerJournal = 33_554_432;
const minChunkWords = 256;
/** Largest chunk of runs, in words. */
const maxChunkWords = 65_536;
/** A chunk is at most this part of a journal's limit, so that not too much is forgotten at once. */
const chunksPerJournal = 8;
const bytesPerWord = 4;
/** No writer refers to a run that is older than its window. A reader hears of both runs late, by different delays. */
const forgetAfterMs = 2 * referenceWindowMs;

/**
 * The runs of another router's journal, to which later ones refer. They are in chunks, each twice as large as the one
 * before up to a bound. An array per run, for thousands of runs a second, would cost the collector more than all the
 * rest of reading them.
 */
export class ReadRuns {
  /** In the order of the numbers of their runs. */
  readonly #chunks: RunChunk[] = [];
  readonly #maxBytes: number;
  readonly #maxChunkWords: number;
  #byteLength = 0;
  /** The chunk in which `#seek` found a run. */
  #chunk = new RunChunk(0);
  #at = 0;

  constructor(maxBytes: number = maxRunBytesPerJournal) {
    this.#maxBytes = maxBytes;
    this.#maxChunkWords = Math.min(maxChunkWords, Math.floor(maxBytes / chunksPerJournal / bytesPerWord));
  }

  /** Bytes of the memory for runs. */
  get byteLength(): number {
    return this.#byteLength;
  }

  /**
   * Writes the chain of a run to the beginning of `into`. Remembers the run if its number is higher than all before, as
   * its writer's numbers are.
   *
   * @param into capacity for `maxRunBlocks` blocks
   * @returns how many blocks it has; 0 when what it refers to is unknown
   */
  resolve(run: ChainRun, into: Uint32Array, nowMs: number): number {
    const { number, parent, shared, words } = run;
    let links = 1;
    if (parent !== undefined) {
      if (!this.#seek(parent)) return 0;
      links += this.#chunk.linksAt(this.#at);
    }
    if (number !== undefined && links > maxRunLinks) return 0;
    into.set(words, shared * 2);
    if (shared > 0 && (parent === undefined || !this.#fill(parent, shared, into))) return 0;
    if (number !== undefined && number > this.#highest) {
      this.#chunkFor(words.length, nowMs).add({ number, parent, shared, links }, words);
    }
    return shared + words.length / 2;
  }

  /** Forgets the oldest runs, a chunk of them. @returns false when there is none */
  forgetOldest(): boolean {
    const oldest = this.#chunks.shift();
    this.#byteLength -= oldest?.byteLength ?? 0;
    return oldest !== undefined;
  }

  get #highest(): number {
    return this.#chunks.at(-1)?.last ?? Number.NEGATIVE_INFINITY;
  }

  #seek(number: number): boolean {
    const chunks = this.#chunks;
    for (let index = chunks.length - 1; index >= 0; index--) {
      const chunk = chunks[index]!;
      if (chunk.first > number) continue;
      this.#chunk = chunk;
      this.#at = chunk.find(number);
      return this.#at >= 0;
    }
    return false;
  }

  /** Writes the first `end` blocks of a run. A run refers to lower numbers only, so the recursion ends. */
  #fill(number: number, end: number, into: Uint32Array): boolean {
    let each = number;
    for (let left = end; left > 0; ) {
      if (!this.#seek(each)) return false;
      const chunk = this.#chunk;
      const at = this.#at;
      if (chunk.blocksAt(at) < left) return false;
      const shared = chunk.sharedAt(at);
      if (left > shared) {
        chunk.copy(at, left, into);
        left = shared;
      }
      each = chunk.parentAt(at);
    }
    return true;
  }

  #chunkFor(words: number, nowMs: number): RunChunk {
    let chunk = this.#chunks.at(-1);
    if (!chunk?.hasCapacityFor(words)) {
      const larger = Math.min(this.#maxChunkWords, Math.max(minChunkWords, 2 * (chunk?.wordCapacity ?? 0)));
      chunk = new RunChunk(Math.max(words, larger));
      this.#chunks.push(chunk);
      this.#byteLength += chunk.byteLength;
      while (this.#chunks.length > 1 && (this.#byteLength > this.#maxBytes || this.#isOldestDue(nowMs))) {
        this.forgetOldest();
      }
    }
    chunk.lastMs = nowMs;
    return chunk;
  }

  #isOldestDue(nowMs: number): boolean {
    return nowMs - this.#chunks[0]!.lastMs > forgetAfterMs;
  }
}
