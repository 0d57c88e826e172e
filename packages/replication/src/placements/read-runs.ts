import type { ChainRun } from "./placement-record.ts";
import { RunChunk } from "./run-chunk.ts";
import { maxRunLinks, referenceWindowMs } from "./written-runs.ts";

/** Bytes of the runs of one journal. */
const maxRunBytesPerJournal = 33_554_432;
const minChunkWords = 256;
const maxChunkWords = 65_536;
/** A chunk is at most this part of what a journal may have, so that not too much is forgotten at once. */
const chunksPerJournal = 8;
const bytesPerWord = 4;
/** No writer refers to a run that is older than its window; a reader hears of both late, and not equally late. */
const forgetAfterMs = 2 * referenceWindowMs;

/**
 * The runs of another router's journal, to which later ones refer. They lie in chunks, each twice as large as the one
 * before up to a bound: an array of its own for each of thousands of runs a second is more work for the collector than
 * all the rest of reading them.
 */
export class ReadRuns {
  /** In the order of the numbers of their runs. */
  readonly #chunks: RunChunk[] = [];
  readonly #maxBytes: number;
  readonly #maxChunkWords: number;
  #byteLength = 0;
  /** Where `#seek` found a run. */
  #chunk = new RunChunk(0);
  #at = 0;

  constructor(maxBytes: number = maxRunBytesPerJournal) {
    this.#maxBytes = maxBytes;
    this.#maxChunkWords = Math.min(maxChunkWords, Math.floor(maxBytes / chunksPerJournal / bytesPerWord));
  }

  /** Of the memory that runs lie in. */
  get byteLength(): number {
    return this.#byteLength;
  }

  /**
   * Writes the chain of a run to the beginning of `into`, and remembers the run if its number is higher than all before, as
   * its writer's numbers are.
   *
   * @param into room for `maxRunBlocks` blocks
   * @returns how many blocks it has; 0 when what it refers to is not known
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
      this.#makeRoom(words.length, nowMs).add({ number, parent, shared, links }, words);
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

  /** Writes the first `end` blocks of a run. A run refers to lower numbers only, so this comes to an end. */
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

  #makeRoom(words: number, nowMs: number): RunChunk {
    let chunk = this.#chunks.at(-1);
    if (!chunk?.hasRoomFor(words)) {
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
