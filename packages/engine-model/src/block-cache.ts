import { type BlockIndex, createBlockIndex } from "./block-index.ts";
import type { EventLog } from "./event-log.ts";
import { createFreeQueue, type FreeQueue, HEAD } from "./free-queue.ts";
import type { KvCache } from "./kv-cache.ts";
import { hashBlocks, type TokenChain } from "./token-chain.ts";
import type { FreeOrder } from "./types.ts";

/** What one request holds in a pool of hashed blocks. */
interface BlockSeat {
  readonly chain: TokenChain;
  /** Its blocks in order of position. */
  readonly blocks: Int32Array;
  heldBlocks: number;
  /** How many of its first blocks are entered under their hash. */
  enteredBlocks: number;
  /** Blocks found by the last `match`; they lie in `blocks`, not yet held. */
  matchedBlocks: number;
}

interface BlockCacheOptions {
  readonly blockCount: number;
  readonly blockSize: number;
  readonly prefixCaching: boolean;
  readonly freeOrder: FreeOrder;
  readonly events: EventLog;
}

/**
 * vLLM's V1 cache (`kv_cache_manager.py`, `block_pool.py`): a pool of blocks with reference counts, a free queue, and a
 * hash per full block. A block is entered under its hash in the step that will fill it, so that a request of the same
 * step can already share it. Freeing keeps the content; only taking a block from the free queue evicts what is in it.
 */
export class BlockCache implements KvCache<BlockSeat> {
  readonly #options: BlockCacheOptions;
  readonly #uncachedFirst: boolean;
  readonly #references: Int32Array;
  readonly #lanesA: Uint32Array;
  readonly #lanesB: Uint32Array;
  readonly #adapters: (string | undefined)[];
  /** 1 for blocks in the index. */
  readonly #entered: Uint8Array;
  readonly #index: BlockIndex;
  readonly #free: FreeQueue;
  readonly #removal = new Uint32Array(2);
  #cachedBlocks = 0;

  constructor(options: BlockCacheOptions) {
    const { blockCount, freeOrder, prefixCaching } = options;
    this.#options = options;
    this.#uncachedFirst = freeOrder === "uncached-first" || !prefixCaching;
    this.#references = new Int32Array(blockCount);
    this.#lanesA = new Uint32Array(blockCount);
    this.#lanesB = new Uint32Array(blockCount);
    this.#adapters = new Array<string | undefined>(blockCount).fill(undefined);
    this.#entered = new Uint8Array(blockCount);
    this.#index = createBlockIndex(this.#lanesA, this.#lanesB);
    this.#free = createFreeQueue(blockCount);
  }

  open(chain: TokenChain): BlockSeat {
    const blocks = new Int32Array(this.#blocksFor(chain.tokens.length));
    return { chain, blocks, heldBlocks: 0, enteredBlocks: 0, matchedBlocks: 0 };
  }

  match(seat: BlockSeat, limitTokens: number): number {
    const { blockSize, prefixCaching } = this.#options;
    seat.matchedBlocks = 0;
    if (!prefixCaching) return 0;
    const limit = Math.floor(limitTokens / blockSize);
    hashBlocks(seat.chain, limit);
    const { lanes } = seat.chain;
    let matched = 0;
    for (; matched < limit; matched++) {
      const block = this.#index.find(lanes[2 * matched]!, lanes[2 * matched + 1]!);
      if (block < 0) break;
      seat.blocks[matched] = block;
    }
    seat.matchedBlocks = matched;
    return matched * blockSize;
  }

  admit(seat: BlockSeat, tokens: number, roomTokens: number): boolean {
    const references = this.#references;
    const matched = seat.matchedBlocks;
    let matchedFree = 0;
    for (let at = 0; at < matched; at++) if (references[seat.blocks[at]!] === 0) matchedFree++;
    // vLLM admits a request only when its whole prompt fits (`scheduler_reserve_full_isl`, on by default).
    if (this.#blocksFor(roomTokens) - matched + matchedFree > this.#free.size()) return false;
    for (let at = 0; at < matched; at++) {
      const block = seat.blocks[at]!;
      if (references[block]!++ === 0) this.#free.remove(block);
    }
    seat.heldBlocks = matched;
    seat.enteredBlocks = matched;
    this.#take(seat, this.#blocksFor(tokens));
    this.#enterFull(seat, tokens);
    return true;
  }

  grow(seat: BlockSeat, tokens: number): boolean {
    const wanted = this.#blocksFor(tokens);
    if (wanted > seat.heldBlocks) {
      if (wanted - seat.heldBlocks > this.#free.size()) return false;
      this.#take(seat, wanted);
    }
    this.#enterFull(seat, tokens);
    return true;
  }

  planned(): void {}

  computed(): void {}

  release(seat: BlockSeat): void {
    // Last block first, so that the end of a request is evicted before its beginning.
    let uncachedTail = HEAD;
    for (let at = seat.heldBlocks - 1; at >= 0; at--) {
      const block = seat.blocks[at]!;
      if (--this.#references[block]! > 0) continue;
      if (this.#uncachedFirst && this.#entered[block] === 0) {
        this.#free.insertAfter(uncachedTail, block);
        uncachedTail = block;
      } else {
        this.#free.append(block);
      }
    }
    seat.heldBlocks = 0;
    seat.enteredBlocks = 0;
  }

  reset(): boolean {
    if (this.#free.size() < this.#options.blockCount) return false;
    this.#index.clear();
    this.#entered.fill(0);
    this.#cachedBlocks = 0;
    this.#options.events.cleared();
    return true;
  }

  freeBlocks(): number {
    return this.#free.size();
  }

  cachedBlocks(): number {
    return this.#cachedBlocks;
  }

  #blocksFor(tokens: number): number {
    return Math.ceil(tokens / this.#options.blockSize);
  }

  /** Takes blocks from the free queue until the seat holds `wanted`, evicting what is in them. */
  #take(seat: BlockSeat, wanted: number): void {
    for (; seat.heldBlocks < wanted; seat.heldBlocks++) {
      const block = this.#free.take();
      if (this.#entered[block] === 1) this.#evict(block);
      this.#references[block] = 1;
      seat.blocks[seat.heldBlocks] = block;
    }
  }

  #evict(block: number): void {
    this.#index.remove(block);
    this.#entered[block] = 0;
    this.#cachedBlocks--;
    this.#removal[0] = this.#lanesA[block]!;
    this.#removal[1] = this.#lanesB[block]!;
    this.#options.events.removed(this.#removal, this.#adapters[block]);
  }

  /** Enters the blocks that the first `tokens` tokens fill. */
  #enterFull(seat: BlockSeat, tokens: number): void {
    const { blockSize, prefixCaching, events } = this.#options;
    const full = Math.floor(tokens / blockSize);
    const from = seat.enteredBlocks;
    if (!prefixCaching || full <= from) return;
    const { chain } = seat;
    hashBlocks(chain, full);
    for (let at = from; at < full; at++) {
      const block = seat.blocks[at]!;
      this.#lanesA[block] = chain.lanes[2 * at]!;
      this.#lanesB[block] = chain.lanes[2 * at + 1]!;
      this.#adapters[block] = chain.adapter;
      this.#entered[block] = 1;
      this.#index.insert(block);
    }
    this.#cachedBlocks += full - from;
    seat.enteredBlocks = full;
    events.stored(chain, from, full);
  }
}
