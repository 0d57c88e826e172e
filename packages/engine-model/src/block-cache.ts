import { HEAD } from "./block-pool.ts";
import type { CacheLog, HashChain, KvCache } from "./kv-cache.ts";
import type { OffloadTier } from "./offload-tier.ts";
import { ReusableBlocks } from "./reusable-blocks.ts";
import type { CpuWrites, FreeOrder } from "./types.ts";

/** The blocks of one request in a pool of hashed blocks. */
interface BlockAllocation<Chain extends HashChain> {
  readonly chain: Chain;
  /** Its blocks in order of position. */
  readonly blocks: Int32Array;
  heldBlocks: number;
  /** How many of its first blocks are indexed under their hash. */
  enteredBlocks: number;
  /** Blocks found by the last `match`: already in `blocks`, not yet referenced. */
  matchedBlocks: number;
  /** How many of its first blocks went to CPU memory. */
  storedBlocks: number;
}

interface BlockCacheOptions<Chain extends HashChain> {
  readonly blockCount: number;
  readonly blockSize: number;
  readonly prefixCaching: boolean;
  readonly freeOrder: FreeOrder;
  readonly log: CacheLog<Chain>;
  /** CPU memory; undefined for none. */
  readonly offload: OffloadTier | undefined;
  readonly cpuWrites: CpuWrites;
}

/**
 * vLLM's V1 cache (`kv_cache_manager.py`) of a model with full attention. A block is indexed under its hash in the step
 * that will fill it, so that a request in the same step can already share it.
 */
export class BlockCache<Chain extends HashChain> implements KvCache<BlockAllocation<Chain>, Chain> {
  readonly #options: BlockCacheOptions<Chain>;
  readonly #blocks: ReusableBlocks;

  constructor(options: BlockCacheOptions<Chain>) {
    this.#options = options;
    this.#blocks = new ReusableBlocks({
      ...options,
      onEvicted: (hash, _block, wasLast, adapter) => this.#evicted(hash, wasLast, adapter),
    });
  }

  open(chain: Chain): BlockAllocation<Chain> {
    const blocks = new Int32Array(this.#blocksFor(chain.totalTokens));
    return { chain, blocks, heldBlocks: 0, enteredBlocks: 0, matchedBlocks: 0, storedBlocks: 0 };
  }

  match(allocation: BlockAllocation<Chain>, limitTokens: number): number {
    const { blockSize, prefixCaching } = this.#options;
    allocation.matchedBlocks = 0;
    if (!prefixCaching) return 0;
    const limit = Math.floor(limitTokens / blockSize);
    allocation.chain.hashBlocks(limit);
    const { hashes } = allocation.chain;
    let matched = 0;
    for (; matched < limit; matched++) {
      const block = this.#blocks.find(hashes[2 * matched]!, hashes[2 * matched + 1]!);
      if (block < 0) break;
      allocation.blocks[matched] = block;
    }
    allocation.matchedBlocks = matched;
    return matched * blockSize;
  }

  admit(allocation: BlockAllocation<Chain>, tokens: number, requiredTokens: number, readyTokens: number): boolean {
    const matched = allocation.matchedBlocks;
    let matchedFree = 0;
    for (let at = 0; at < matched; at++) if (this.#blocks.isFree(allocation.blocks[at]!)) matchedFree++;
    // vLLM admits a request only when its whole prompt fits (`scheduler_reserve_full_isl`, on by default).
    if (this.#blocksFor(requiredTokens) - matched + matchedFree > this.#blocks.freeCount) return false;
    for (let at = 0; at < matched; at++) this.#blocks.share(allocation.blocks[at]!);
    allocation.heldBlocks = matched;
    allocation.enteredBlocks = matched;
    this.#take(allocation, this.#blocksFor(tokens));
    this.#enterFull(allocation, readyTokens);
    return true;
  }

  grow(allocation: BlockAllocation<Chain>, tokens: number): boolean {
    const wanted = this.#blocksFor(tokens);
    if (wanted > allocation.heldBlocks) {
      if (wanted - allocation.heldBlocks > this.#blocks.freeCount) return false;
      this.#take(allocation, wanted);
    }
    this.#enterFull(allocation, tokens);
    return true;
  }

  idleUpTo(allocation: BlockAllocation<Chain>): number {
    const { blockSize, prefixCaching } = this.#options;
    const heldTokens = allocation.heldBlocks * blockSize;
    return prefixCaching ? Math.min(heldTokens, (allocation.enteredBlocks + 1) * blockSize - 1) : heldTokens;
  }

  entersNext(allocation: BlockAllocation<Chain>): boolean {
    return this.#options.prefixCaching && allocation.enteredBlocks < allocation.heldBlocks;
  }

  planned(): void {}

  isSettled(): boolean {
    return true;
  }

  computed(allocation: BlockAllocation<Chain>, tokens: number): void {
    this.#store(allocation, Math.min(tokens, allocation.chain.promptTokens));
  }

  release(allocation: BlockAllocation<Chain>, tokens: number, keep: boolean): void {
    const most = this.#options.cpuWrites === "all" ? tokens : allocation.chain.promptTokens;
    if (keep) this.#store(allocation, Math.min(tokens, most));
    let uncachedTail = HEAD;
    for (let at = allocation.heldBlocks - 1; at >= 0; at--) {
      uncachedTail = this.#blocks.giveBack(allocation.blocks[at]!, uncachedTail);
    }
    allocation.heldBlocks = 0;
    allocation.enteredBlocks = 0;
  }

  reset(): boolean {
    if (!this.#blocks.clear()) return false;
    this.#options.offload?.clear();
    this.#options.log.cleared();
    return true;
  }

  freeBlocks(): number {
    return this.#blocks.freeCount;
  }

  cachedBlocks(): number {
    return this.#blocks.cachedCount;
  }

  /** Copies the blocks that the first `tokens` tokens fill to CPU memory, unless it takes only evicted ones. */
  #store(allocation: BlockAllocation<Chain>, tokens: number): void {
    const { offload, cpuWrites, blockSize } = this.#options;
    const blocks = Math.floor(tokens / blockSize);
    if (!offload || cpuWrites === "evicted" || blocks <= allocation.storedBlocks) return;
    allocation.chain.hashBlocks(blocks);
    offload.store(allocation.chain, blocks);
    allocation.storedBlocks = blocks;
  }

  #blocksFor(tokens: number): number {
    return Math.ceil(tokens / this.#options.blockSize);
  }

  /** Takes blocks from the free queue until the allocation has `wanted`, and evicts their content. */
  #take(allocation: BlockAllocation<Chain>, wanted: number): void {
    for (; allocation.heldBlocks < wanted; allocation.heldBlocks++) {
      allocation.blocks[allocation.heldBlocks] = this.#blocks.take();
    }
  }

  #evicted(hash: Uint32Array, wasLast: boolean, adapter: string | undefined): void {
    const { log, offload, cpuWrites } = this.#options;
    if (!wasLast && !log.everyCopy) return;
    if (wasLast && cpuWrites === "evicted") offload?.keep(hash);
    log.removed(hash, adapter);
  }

  /** Indexes the blocks that the first `tokens` tokens fill. */
  #enterFull(allocation: BlockAllocation<Chain>, tokens: number): void {
    const { blockSize, prefixCaching, log } = this.#options;
    const full = Math.floor(tokens / blockSize);
    const from = allocation.enteredBlocks;
    if (!prefixCaching || full <= from) return;
    const { chain } = allocation;
    chain.hashBlocks(full);
    // Blocks from `logged` on are not logged yet.
    let logged = from;
    for (let at = from; at < full; at++) {
      const [block, a, b] = [allocation.blocks[at]!, chain.hashes[2 * at]!, chain.hashes[2 * at + 1]!];
      const isFirst = this.#blocks.enter(block, a, b, chain.adapter);
      if (isFirst || log.everyCopy) continue;
      if (logged < at) log.stored(chain, logged, at);
      logged = at + 1;
    }
    if (logged < full) log.stored(chain, logged, full);
    allocation.enteredBlocks = full;
  }
}
