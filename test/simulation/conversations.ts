import type { Random } from "@espalier/core";
import type { SimRequest } from "@espalier/simulator";
import { pick } from "./repeat.ts";

const blockTokens = 16;
/** Beginnings that many conversations share. */
const sharedPrefixes = 4;
const sharedPrefixBlocks = 6;

interface Conversation {
  readonly number: number;
  readonly prefix: number;
  turn: number;
  /** Of all that was said. */
  tokens: number;
  isWaiting: boolean;
}

/** Conversations whose turns begin with all that was said before. Their content is drawn by what it follows. */
export class Conversations {
  readonly #random: Random;
  readonly #count: number;
  readonly #maxTokens: number;
  readonly #open: Conversation[] = [];
  #begun = 0;
  #sent: number;

  /**
   * @param maxTokens the longest prompt and answer together
   * @param first number of the first request and conversation, so that several of these do not meet
   */
  constructor(options: { random: Random; count: number; maxTokens: number; first?: number }) {
    this.#random = options.random;
    this.#count = options.count;
    this.#maxTokens = options.maxTokens;
    this.#sent = options.first ?? 0;
    this.#begun = options.first ?? 0;
  }

  /** The next turn of a conversation that waits for none; undefined when all do. */
  next(): SimRequest | undefined {
    if (this.#open.length < this.#count) this.#open.push(this.#begin());
    const idle = this.#open.filter(({ isWaiting }) => !isWaiting);
    return idle.length === 0 ? undefined : this.#turnOf(pick(this.#random, idle));
  }

  /** @param isAnswered else it is not continued */
  ended({ session, promptTokens, outputTokens }: SimRequest, isAnswered: boolean): void {
    const at = this.#open.findIndex(({ number }) => number === session);
    const conversation = this.#open[at];
    if (!conversation) return;
    conversation.isWaiting = false;
    conversation.tokens = promptTokens + outputTokens;
    const isFull = conversation.tokens + 8 * blockTokens > this.#maxTokens;
    if (isFull || !isAnswered || this.#random.integer(12) === 0) this.#open.splice(at, 1);
  }

  #begin(): Conversation {
    const prefix = this.#random.integer(sharedPrefixes);
    return { number: this.#begun++, prefix, turn: 0, tokens: sharedPrefixBlocks * blockTokens, isWaiting: false };
  }

  #turnOf(conversation: Conversation): SimRequest {
    const random = this.#random;
    const outputTokens = 1 + random.integer(32);
    const room = this.#maxTokens - conversation.tokens - outputTokens;
    const promptTokens = conversation.tokens + 1 + random.integer(Math.max(1, Math.min(96, room - 1)));
    conversation.isWaiting = true;
    const { number, prefix } = conversation;
    return {
      index: this.#sent++,
      session: number,
      turn: conversation.turn++,
      promptTokens,
      outputTokens,
      chain: chainOf(number, prefix, Math.floor((promptTokens + outputTokens) / blockTokens)),
    };
  }
}

/** Chain hashes of a conversation: the same for all of the same prefix as far as that goes. */
function chainOf(conversation: number, prefix: number, blocks: number): Uint32Array {
  const chain = new Uint32Array(2 * blocks);
  for (let block = 0; block < blocks; block++) {
    const owner = block < sharedPrefixBlocks ? -1 - prefix : conversation;
    chain[2 * block] = mix(owner, block, 0x9e37_79b1);
    chain[2 * block + 1] = mix(owner, block, 0x85eb_ca6b);
  }
  return chain;
}

function mix(owner: number, block: number, salt: number): number {
  let word = Math.imul(owner + 0x3c6e, salt) ^ Math.imul(block + 1, 0xc2b2_ae35);
  word = Math.imul(word ^ (word >>> 15), 0x2c1b_3c6d);
  word = Math.imul(word ^ (word >>> 12), 0x297a_2d39);
  return (word ^ (word >>> 15)) >>> 0;
}
