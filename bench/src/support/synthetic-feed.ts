import type { Random } from "@espalier/core";
import { mixWord } from "@espalier/core";
import { type LedgerSink, tier } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/shared-tree";

export interface SyntheticFeedOptions {
  readonly random: Random;
  /** Identifies the feed: feeds with different seeds have different blocks. 32 bits. */
  readonly seed: number;
  /** Blocks in the engine once it is full. */
  readonly liveBlocks: number;
}

/** Requests that complete a block in one engine step: 1 to this many. */
const maxDecodedBlocks = 4;
/** Share of steps in which a prompt begins, and its length in blocks. */
const promptShare = 0.15;
const minPromptBlocks = 8;
const maxPromptBlocks = 64;
/** Chains that still grow: the newest ones. */
const growingChains = 64;
/** The most blocks that one message stores. */
export const maxStoredPerMessage = maxDecodedBlocks + maxPromptBlocks;
/** Maximum blocks that a sink receives in one call. */
const callBlocks = 1_024;

/**
 * The block changes of an engine in steady state, as its ledger passes them to a sink. Each step is one message. It
 * stores a block for some of the running requests, now and then the blocks of a prompt, and evicts as many, from the
 * oldest chains first and leaf first. Blocks take no memory: each is computed from its chain and depth.
 */
export class SyntheticFeed {
  readonly #random: Random;
  readonly #seed: number;
  readonly #liveBlocks: number;
  /** Lengths of the live chains, the oldest at `#oldest`, in a ring. */
  #lengths = new Uint16Array(1_024);
  #oldest = 0;
  /** Number of the next chain; chains are numbered in the order in which they begin. */
  #next = 0;
  #blocks = 0;
  #messages = 0;
  readonly #stored = new Uint32Array(2 * maxStoredPerMessage);
  readonly #removed = new Uint32Array(2 * maxStoredPerMessage);

  /** @throws RangeError when it could not hold even one message */
  constructor({ random, seed, liveBlocks }: SyntheticFeedOptions) {
    if (liveBlocks < maxStoredPerMessage) throw new RangeError(`liveBlocks is ${liveBlocks}`);
    this.#random = random;
    this.#seed = seed;
    this.#liveBlocks = liveBlocks;
  }

  /** Blocks in the engine. */
  get blocks(): number {
    return this.#blocks;
  }

  /** Whether every further message evicts as much as it stores. */
  get isFull(): boolean {
    return this.#blocks >= this.#liveBlocks - maxStoredPerMessage;
  }

  /**
   * Makes the next step. Engines evict first, and then store.
   *
   * @returns blocks stored and removed
   */
  step(sink: LedgerSink): number {
    const decoded = 1 + this.#random.integer(maxDecodedBlocks);
    const hasPrompt = this.#next === this.#oldest || this.#random.float() < promptShare;
    const prompt = hasPrompt ? minPromptBlocks + this.#random.integer(maxPromptBlocks - minPromptBlocks + 1) : 0;
    const removed = Math.max(0, this.#blocks + decoded + prompt - this.#liveBlocks);
    if (removed > 0) sink.removed(tier.gpu, this.#removed, 0, this.#evict(removed));
    const stored = this.#store(decoded, prompt);
    sink.stored(tier.gpu, this.#stored, 0, stored);
    return removed + stored;
  }

  /** Identifies the message of the last step. */
  mark(timestampUs: number): BatchMark {
    const sequence = this.#messages++;
    return { sequence, timestampUs, checksum: mixWord(this.#seed ^ sequence) };
  }

  /** Passes on everything in the engine, parents before children. */
  tellAll(sink: LedgerSink): void {
    const words = new Uint32Array(2 * callBlocks);
    let count = 0;
    for (let chain = this.#oldest; chain < this.#next; chain++) {
      for (let depth = 0; depth < this.#lengthOf(chain); depth++) {
        this.#write(words, count++, chain, depth);
        if (count < callBlocks) continue;
        sink.stored(tier.gpu, words, 0, count);
        count = 0;
      }
    }
    if (count > 0) sink.stored(tier.gpu, words, 0, count);
  }

  #store(decoded: number, prompt: number): number {
    let count = 0;
    if (prompt > 0) count = this.#grow(this.#begin(), prompt, count);
    for (let request = 0; request < decoded; request++) {
      const growing = Math.min(this.#next - this.#oldest, growingChains);
      const chain = growing === 0 ? this.#begin() : this.#next - 1 - this.#random.integer(growing);
      count = this.#grow(chain, 1, count);
    }
    this.#blocks += count;
    return count;
  }

  #begin(): number {
    if (this.#next - this.#oldest === this.#lengths.length) this.#widen();
    const chain = this.#next++;
    this.#lengths[chain & (this.#lengths.length - 1)] = 0;
    return chain;
  }

  #grow(chain: number, blocks: number, count: number): number {
    const at = chain & (this.#lengths.length - 1);
    const depth = this.#lengths[at]!;
    for (let block = 0; block < blocks; block++) this.#write(this.#stored, count + block, chain, depth + block);
    this.#lengths[at] = depth + blocks;
    return count + blocks;
  }

  #evict(blocks: number): number {
    for (let count = 0; count < blocks; ) {
      const at = this.#oldest & (this.#lengths.length - 1);
      if (this.#lengths[at] === 0) this.#oldest += 1;
      else this.#write(this.#removed, count++, this.#oldest, --this.#lengths[at]!);
    }
    this.#blocks -= blocks;
    return blocks;
  }

  #lengthOf(chain: number): number {
    return this.#lengths[chain & (this.#lengths.length - 1)]!;
  }

  #widen(): void {
    const wider = new Uint16Array(2 * this.#lengths.length);
    for (let chain = this.#oldest; chain < this.#next; chain++) {
      wider[chain & (wider.length - 1)] = this.#lengthOf(chain);
    }
    this.#lengths = wider;
  }

  #write(words: Uint32Array, block: number, chain: number, depth: number): void {
    const of = mixWord(this.#seed ^ mixWord(chain + 1));
    const other = mixWord(of ^ Math.imul(this.#seed + 1, 0x9e37_79b1) ^ chain);
    words[2 * block] = mixWord(of + Math.imul(depth + 1, 0x85eb_ca6b));
    words[2 * block + 1] = mixWord(other + Math.imul(depth + 1, 0xc2b2_ae35));
  }
}
