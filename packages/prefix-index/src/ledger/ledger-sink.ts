import type { FactKind, Tier } from "../tiers.ts";

/**
 * Takes the changes of a target's blocks, in order. Hashes are chain hashes of the router's blocks, two words each, low
 * word first; positions are in hashes. The arrays are reused: they are valid only during the call.
 */
export interface LedgerSink {
  /**
   * These blocks entered this tier, parents before children, or became resume points in any order. If one of them was a
   * hole of the tier, the hole ends.
   */
  stored(kind: FactKind, words: Uint32Array, from: number, to: number): void;
  /** These blocks left this tier, or are no resume points any more. */
  removed(kind: FactKind, words: Uint32Array, from: number, to: number): void;
  /**
   * The block at `at` is a hole: it is not in this tier, but some block below it is. Called at the end of an event.
   *
   * @param depthBlocks router blocks before it
   */
  orphaned(tier: Tier, words: Uint32Array, at: number, depthBlocks: number): void;
  /** Nothing below a hole is in this tier any more. */
  holeGone(tier: Tier, words: Uint32Array, at: number): void;
  /** Nothing is left, including holes. */
  cleared(): void;
}

const runHashes = 1_024;

type RunKind = "stored" | "removed";

/** Gathers consecutive blocks with the same change into runs for a sink. */
export class SinkRuns {
  readonly #sink: LedgerSink;
  readonly #words = new Uint32Array(2 * runHashes);
  #count = 0;
  #kind: RunKind = "stored";
  #tier: FactKind = 0;

  constructor(sink: LedgerSink) {
    this.#sink = sink;
  }

  /** Adds the hash at word `at` of `source`. */
  add(kind: RunKind, tier: number, source: Uint32Array, at: number): void {
    if (this.#count === runHashes || kind !== this.#kind || tier !== this.#tier) this.flush();
    this.#kind = kind;
    this.#tier = tier as FactKind;
    const words = this.#words;
    const word = 2 * this.#count++;
    words[word] = source[at]!;
    words[word + 1] = source[at + 1]!;
  }

  orphaned(tier: number, words: Uint32Array, word: number, depthBlocks: number): void {
    this.flush();
    this.#words[0] = words[word]!;
    this.#words[1] = words[word + 1]!;
    this.#sink.orphaned(tier as Tier, this.#words, 0, depthBlocks);
  }

  holeGone(tier: number, words: Uint32Array, word: number): void {
    this.flush();
    this.#words[0] = words[word]!;
    this.#words[1] = words[word + 1]!;
    this.#sink.holeGone(tier as Tier, this.#words, 0);
  }

  flush(): void {
    const count = this.#count;
    if (count === 0) return;
    this.#count = 0;
    this.#sink[this.#kind](this.#tier, this.#words, 0, count);
  }

  /** Drops what was not flushed, and clears the sink. */
  cleared(): void {
    this.#count = 0;
    this.#sink.cleared();
  }
}
