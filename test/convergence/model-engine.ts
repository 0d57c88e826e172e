import type { Random } from "@espalier/core";
import type { BatchMark } from "@espalier/shared-tree";

/** One message of an engine: blocks by number. */
export interface EngineMessage extends BatchMark {
  readonly stored: readonly number[];
  readonly removed: readonly number[];
}

export interface ModelEngineOptions {
  readonly key: string;
  readonly random: Random;
  /** Blocks that it can hold, numbered from 0. */
  readonly blocks: number;
}

const startUs = 1_700_000_000_000_000;

/** An engine that publishes which blocks come and go. A restart empties it, and its messages begin at 0 again. */
export class ModelEngine {
  readonly key: string;
  readonly blocks: number;
  readonly held = new Set<number>();
  /** Every message of the present process. */
  messages: EngineMessage[] = [];
  epochs = 1;
  readonly #random: Random;
  readonly #listeners = new Set<() => void>();
  #nowUs = startUs;

  constructor({ key, random, blocks }: ModelEngineOptions) {
    this.key = key;
    this.blocks = blocks;
    this.#random = random;
  }

  /** Publishes one message of at most six changes. */
  publish(): void {
    const stored: number[] = [];
    const removed: number[] = [];
    for (let change = 1 + this.#random.integer(6); change > 0; change--) {
      const block = this.#random.integer(this.blocks);
      if (stored.includes(block) || removed.includes(block)) continue;
      if (this.held.delete(block)) removed.push(block);
      else {
        this.held.add(block);
        stored.push(block);
      }
    }
    this.#nowUs += 1_000 + this.#random.integer(5_000);
    const checksum = this.#random.integer(0x1_0000_0000);
    this.messages.push({ sequence: this.messages.length, timestampUs: this.#nowUs, checksum, stored, removed });
    for (const listener of [...this.#listeners]) listener();
  }

  restart(): void {
    this.epochs++;
    this.held.clear();
    this.messages = [];
    this.#nowUs += 8_000_000;
  }

  onMessage(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** The chain hashes of blocks, two words each. */
export function wordsOf(blocks: readonly number[]): Uint32Array {
  const words = new Uint32Array(blocks.length * 2);
  for (const [at, block] of blocks.entries()) {
    words[at * 2] = Math.imul(block + 1, 0x9e37_79b1);
    words[at * 2 + 1] = Math.imul(block + 7, 0x85eb_ca6b);
  }
  return words;
}

/** The chain hashes of a conversation: longer ones begin as shorter ones do, and no other has any of them. */
export function chainOf(conversation: number, blockCount: number): Uint32Array {
  const first = 1_000_000 + conversation * 1_000;
  return wordsOf(Array.from({ length: blockCount }, (_, at) => first + at));
}
