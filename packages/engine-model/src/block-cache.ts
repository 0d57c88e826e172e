import { HEAD } from "./block-pool.ts";
import type { CacheLog, HashChain, KvCache } from "./kv-cache.ts";
import type { TokenRange } from "./kv-pull.ts";
import type { Load, OffloadTier } from "./offload-tier.ts";
import { ReusableBlocks } from "./reusable-blocks.ts";
import type { FreeOrder } from "./types.ts";

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
  /** The first chunk that was not offered to CPU memory yet. */
  nextChunk: number;
  /** Chunks that it loaded or offered, whose use counts when the request ends; `to` is exclusive. */
  used: { from: number; to: number } | undefined;
  load: Load | undefined;
}

interface BlockCacheOptions<Chain extends HashChain> {
  readonly blockCount: number;
  readonly blockSize: number;
  readonly prefixCaching: boolean;
  readonly freeOrder: FreeOrder;
  readonly log: CacheLog<Chain>;
  /** CPU memory; undefined for none. */
  readonly offload: OffloadTier | undefined;
  /** Blocks per chunk of CPU memory. */
  readonly chunkBlocks: number;
  /** Whether outputs go to CPU memory, too, when their request ends. */
  readonly offloadsOutputs: boolean;
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
    const nothing = { heldBlocks: 0, enteredBlocks: 0, matchedBlocks: 0, nextChunk: 0 };
    return { chain, blocks, ...nothing, used: undefined, load: undefined };
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

  reach({ chain }: BlockAllocation<Chain>, matchedTokens: number, knownTokens: number): number {
    return this.#options.offload?.reach(chain, matchedTokens, knownTokens) ?? matchedTokens;
  }

  isLoading({ chain }: BlockAllocation<Chain>, matchedTokens: number, toTokens: number): boolean {
    return this.#options.offload?.isLoading(chain, matchedTokens, toTokens) ?? false;
  }

  load(allocation: BlockAllocation<Chain>, range: TokenRange, nowMs: number): number {
    allocation.load = this.#options.offload?.load(allocation.chain, range, nowMs);
    const { fromTokens, toTokens } = range;
    // What was loaded is not offered, nor what is before it.
    allocation.nextChunk = toTokens / this.#chunkTokens;
    this.#use(allocation, Math.floor(fromTokens / this.#chunkTokens), allocation.nextChunk);
    return allocation.load?.readyMs ?? nowMs;
  }

  loaded(allocation: BlockAllocation<Chain>): void {
    allocation.load?.end();
    allocation.load = undefined;
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
    this.#offer(allocation, Math.min(tokens, allocation.chain.promptTokens));
  }

  release(allocation: BlockAllocation<Chain>, tokens: number, keep: boolean): void {
    const { offload, offloadsOutputs } = this.#options;
    this.loaded(allocation);
    if (keep) {
      this.#offer(allocation, offloadsOutputs ? tokens : Math.min(tokens, allocation.chain.promptTokens));
      const { chain, used } = allocation;
      if (used) offload?.use(chain, used.from, used.to);
      allocation.used = undefined;
    }
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

  cpuBlocks(): number {
    return this.#options.offload?.blocks() ?? 0;
  }

  get #chunkTokens(): number {
    return this.#options.chunkBlocks * this.#options.blockSize;
  }

  /** Offers the chunks that the first `tokens` tokens fill to CPU memory; again later, if it has no room for them. */
  #offer(allocation: BlockAllocation<Chain>, tokens: number): void {
    const { offload } = this.#options;
    const from = allocation.nextChunk;
    const to = Math.floor(tokens / this.#chunkTokens);
    if (!offload || to <= from) return;
    if (offload.offer(allocation.chain, from, to)) allocation.nextChunk = to;
    this.#use(allocation, from, to);
  }

  #use(allocation: BlockAllocation<Chain>, from: number, to: number): void {
    const { used } = allocation;
    allocation.used = { from: Math.min(from, used?.from ?? from), to: Math.max(to, used?.to ?? to) };
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
    const { log } = this.#options;
    if (wasLast || log.everyCopy) log.removed(hash, adapter);
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
