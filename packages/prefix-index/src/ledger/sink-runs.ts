import type { Tier } from "../tiers.ts";
import type { LedgerSink } from "./ledger-sink.ts";

const runHashes = 1_024;

type RunKind = "stored" | "removed";

/** Gathers blocks that follow each other with the same news into runs, which is what a sink gets. */
export class SinkRuns {
  readonly #sink: LedgerSink;
  readonly #words = new Uint32Array(2 * runHashes);
  #count = 0;
  #kind: RunKind = "stored";
  #tier: Tier = 0;

  constructor(sink: LedgerSink) {
    this.#sink = sink;
  }

  /** Adds the `hashes` hashes that are in `source` from word `at` on. */
  add(kind: RunKind, tier: number, source: Uint32Array, at: number, hashes: number): void {
    if (this.#count > 0 && (kind !== this.#kind || tier !== this.#tier)) this.flush();
    this.#kind = kind;
    this.#tier = tier as Tier;
    const words = this.#words;
    let count = this.#count;
    for (let word = at; word < at + 2 * hashes; word += 2) {
      if (count === runHashes) {
        this.#count = count;
        this.flush();
        count = 0;
      }
      words[2 * count] = source[word]!;
      words[2 * count + 1] = source[word + 1]!;
      count++;
    }
    this.#count = count;
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

  /** Everything is gone, what was not told yet too. */
  cleared(): void {
    this.#count = 0;
    this.#sink.cleared();
  }
}
