import type { Random } from "@espalier/core";
import type { BatchMark } from "../../src/facts/engine-epoch.ts";

export interface EngineMessage extends BatchMark {
  readonly stored: readonly number[];
  readonly removed: readonly number[];
}

const startUs = 1_700_000_000_000_000;

/** An engine whose blocks are numbers, each a chain of its own. Blocks come and go; a restart empties it. */
export class ModelEngine {
  readonly held = new Set<number>();
  /** Every message of the present process. */
  messages: EngineMessage[] = [];
  epochs = 1;
  readonly #random: Random;
  readonly #blocks: number;
  #nowUs = startUs;

  constructor(random: Random, blocks = 400) {
    this.#random = random;
    this.#blocks = blocks;
  }

  /** Publishes one message. */
  next(): EngineMessage {
    const stored: number[] = [];
    const removed: number[] = [];
    for (let change = 1 + this.#random.integer(6); change > 0; change--) {
      const block = this.#random.integer(this.#blocks);
      if (stored.includes(block) || removed.includes(block)) continue;
      if (this.held.delete(block)) removed.push(block);
      else {
        this.held.add(block);
        stored.push(block);
      }
    }
    return this.publish(stored, removed);
  }

  publish(stored: readonly number[], removed: readonly number[] = []): EngineMessage {
    for (const block of stored) this.held.add(block);
    for (const block of removed) this.held.delete(block);
    this.#nowUs += 1_000 + this.#random.integer(5_000);
    const checksum = this.#random.integer(0x1_0000_0000);
    const message = { sequence: this.messages.length, timestampUs: this.#nowUs, checksum, stored, removed };
    this.messages.push(message);
    return message;
  }

  restart(): void {
    this.epochs++;
    this.held.clear();
    this.messages = [];
    this.#nowUs += 8_000_000;
  }

  /** Sets the clock, forward or back. */
  setClock(byUs: number): void {
    this.#nowUs += byUs;
  }
}

/** The chain hash of a block, as two words. */
export function wordsOf(blocks: readonly number[]): Uint32Array {
  const words = new Uint32Array(blocks.length * 2);
  for (const [at, block] of blocks.entries()) {
    words[at * 2] = Math.imul(block + 1, 0x9e3779b1);
    words[at * 2 + 1] = Math.imul(block + 7, 0x85ebca6b);
  }
  return words;
}
