import {
  type BlockIndex,
  type BlockRecords,
  createBlockIndex,
  createBlockRecords,
  createFreeQueue,
  type FreeQueue,
  HEAD,
  recordField,
} from "./block-pool.ts";
import type { CacheLog, HashChain, KvCache } from "./kv-cache.ts";
import type { OffloadTier } from "./offload-tier.ts";
import type { FreeOrder } from "./types.ts";

const { words, references, laneA, laneB } = recordField;

/** What one request holds in a pool of hashed blocks. */
interface BlockSeat<Chain extends HashChain> {
  readonly chain: Chain;
  /** Its blocks in order of position. */
  readonly blocks: Int32Array;
  heldBlocks: number;
  /** How many of its first blocks are entered under their hash. */
  enteredBlocks: number;
  /** Blocks found by the last `match`; they lie in `blocks`, not yet held. */
  matchedBlocks: number;
}

interface BlockCacheOptions<Chain extends HashChain> {
  readonly blockCount: number;
  readonly blockSize: number;
  readonly prefixCaching: boolean;
  readonly freeOrder: FreeOrder;
  readonly log: CacheLog<Chain>;
  /** Where content goes that is evicted; nowhere when left out. */
  readonly offload: OffloadTier | undefined;
}

/**
 * vLLM's V1 cache (`kv_cache_manager.py`, `block_pool.py`): a pool of blocks with reference counts, a free queue, and a
 * hash per full block. A block is entered under its hash in the step that will fill it, so that a request of the same
 * step can already share it. Freeing keeps the content; only taking a block from the free queue evicts what is in it.
 */
export class BlockCache<Chain extends HashChain> implements KvCache<BlockSeat<Chain>, Chain> {
  readonly #options: BlockCacheOptions<Chain>;
  readonly #uncachedFirst: boolean;
  readonly #records: BlockRecords;
  readonly #index: BlockIndex;
  readonly #free: FreeQueue;
  /** Of blocks that are entered for an adapter. */
  readonly #adapters = new Map<number, string>();
  readonly #removal = new Uint32Array(2);
  #cachedBlocks = 0;

  constructor(options: BlockCacheOptions<Chain>) {
    const { blockCount, freeOrder, prefixCaching } = options;
    this.#options = options;
    this.#uncachedFirst = freeOrder === "uncached-first" || !prefixCaching;
    this.#records = createBlockRecords(blockCount);
    this.#index = createBlockIndex(this.#records);
    this.#free = createFreeQueue(this.#records);
  }

  open(chain: Chain): BlockSeat<Chain> {
    const blocks = new Int32Array(this.#blocksFor(chain.totalTokens));
    return { chain, blocks, heldBlocks: 0, enteredBlocks: 0, matchedBlocks: 0 };
  }

  match(seat: BlockSeat<Chain>, limitTokens: number): number {
    const { blockSize, prefixCaching } = this.#options;
    seat.matchedBlocks = 0;
    if (!prefixCaching) return 0;
    const limit = Math.floor(limitTokens / blockSize);
    seat.chain.hashBlocks(limit);
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

  admit(seat: BlockSeat<Chain>, tokens: number, roomTokens: number, readyTokens: number): boolean {
    const records = this.#records;
    const matched = seat.matchedBlocks;
    let matchedFree = 0;
    for (let at = 0; at < matched; at++) if (records[seat.blocks[at]! * words + references] === 0) matchedFree++;
    // vLLM admits a request only when its whole prompt fits (`scheduler_reserve_full_isl`, on by default).
    if (this.#blocksFor(roomTokens) - matched + matchedFree > this.#free.size()) return false;
    for (let at = 0; at < matched; at++) {
      const block = seat.blocks[at]!;
      if (records[block * words + references]!++ === 0) this.#free.remove(block);
    }
    seat.heldBlocks = matched;
    seat.enteredBlocks = matched;
    this.#take(seat, this.#blocksFor(tokens));
    this.#enterFull(seat, readyTokens);
    return true;
  }

  grow(seat: BlockSeat<Chain>, tokens: number): boolean {
    const wanted = this.#blocksFor(tokens);
    if (wanted > seat.heldBlocks) {
      if (wanted - seat.heldBlocks > this.#free.size()) return false;
      this.#take(seat, wanted);
    }
    this.#enterFull(seat, tokens);
    return true;
  }

  idleUpTo(seat: BlockSeat<Chain>): number {
    const { blockSize, prefixCaching } = this.#options;
    const heldTokens = seat.heldBlocks * blockSize;
    return prefixCaching ? Math.min(heldTokens, (seat.enteredBlocks + 1) * blockSize - 1) : heldTokens;
  }

  entersNext(seat: BlockSeat<Chain>): boolean {
    return this.#options.prefixCaching && seat.enteredBlocks < seat.heldBlocks;
  }

  planned(): void {}

  isSettled(): boolean {
    return true;
  }

  computed(): void {}

  release(seat: BlockSeat<Chain>): void {
    // Last block first, so that the end of a request is evicted before its beginning.
    const records = this.#records;
    let uncachedTail = HEAD;
    for (let at = seat.heldBlocks - 1; at >= 0; at--) {
      const block = seat.blocks[at]!;
      if (--records[block * words + references]! > 0) continue;
      if (this.#uncachedFirst && !this.#index.has(block)) {
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
    this.#adapters.clear();
    this.#cachedBlocks = 0;
    this.#options.offload?.clear();
    this.#options.log.cleared();
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
  #take(seat: BlockSeat<Chain>, wanted: number): void {
    for (; seat.heldBlocks < wanted; seat.heldBlocks++) {
      const block = this.#free.take();
      if (this.#index.has(block)) this.#evict(block);
      this.#records[block * words + references] = 1;
      seat.blocks[seat.heldBlocks] = block;
    }
  }

  #evict(block: number): void {
    const { log, offload } = this.#options;
    const wasLast = this.#index.remove(block);
    this.#cachedBlocks--;
    const adapter = this.#adapters.get(block);
    if (adapter !== undefined) this.#adapters.delete(block);
    if (!wasLast && !log.everyCopy) return;
    this.#removal[0] = this.#records[block * words + laneA]!;
    this.#removal[1] = this.#records[block * words + laneB]!;
    if (wasLast) offload?.keep(this.#removal);
    log.removed(this.#removal, adapter);
  }

  /** Enters the blocks that the first `tokens` tokens fill. */
  #enterFull(seat: BlockSeat<Chain>, tokens: number): void {
    const { blockSize, prefixCaching, log } = this.#options;
    const full = Math.floor(tokens / blockSize);
    const from = seat.enteredBlocks;
    if (!prefixCaching || full <= from) return;
    const { chain } = seat;
    chain.hashBlocks(full);
    // Blocks from `told` on are still to be told of.
    let told = from;
    for (let at = from; at < full; at++) {
      const block = seat.blocks[at]!;
      const isFirst = this.#index.insert(block, chain.lanes[2 * at]!, chain.lanes[2 * at + 1]!);
      if (chain.adapter !== undefined) this.#adapters.set(block, chain.adapter);
      if (isFirst || log.everyCopy) continue;
      if (told < at) log.stored(chain, told, at);
      told = at + 1;
    }
    if (told < full) log.stored(chain, told, full);
    this.#cachedBlocks += full - from;
    seat.enteredBlocks = full;
  }
}
