import { GrowableWords } from "../table/growable-words.ts";

const minCounts = 1_024;

/** A counter per node, zero at first. Takes no memory until one is changed. */
export class TierCounts {
  readonly #maxNodes: number;
  #memory: GrowableWords | undefined;
  #words: Uint32Array = new Uint32Array(0);

  constructor(maxNodes: number) {
    this.#maxNodes = maxNodes;
  }

  get byteLength(): number {
    return this.#words.byteLength;
  }

  of(id: number): number {
    return id < this.#words.length ? this.#words[id]! : 0;
  }

  change(id: number, difference: number): void {
    if (id >= this.#words.length) this.#grow(id);
    this.#words[id]! += difference;
  }

  #grow(id: number): void {
    this.#memory ??= new GrowableWords(this.#maxNodes + 1, minCounts);
    this.#memory.ensure(Math.min(this.#maxNodes + 1, id + minCounts + (id >> 6)));
    this.#words = this.#memory.words;
  }
}
