import type { CacheLog, HashChain, KvCache } from "./kv-cache.ts";
import type { OffloadTier } from "./offload-tier.ts";
import { type RadixNode, RadixTree } from "./radix-tree.ts";

/** What one request holds beside a radix tree. */
interface RadixSeat<Chain extends HashChain> {
  readonly chain: Chain;
  /** The tree node up to which it uses the tree's pages; locked once admitted. */
  node: RadixNode;
  /** Pages of the tree that it uses. */
  treePages: number;
  /** All its pages, the tree's and its own. */
  pages: number;
  /** Tokens it has slots for. */
  tokens: number;
}

interface RadixCacheOptions<Chain extends HashChain> {
  readonly blockCount: number;
  readonly blockSize: number;
  readonly prefixCaching: boolean;
  readonly log: CacheLog<Chain>;
  /** Where content goes that is evicted; nowhere when left out. */
  readonly offload: OffloadTier | undefined;
}

/**
 * SGLang's cache (`unified_radix_cache.py`, `allocation.py`, 0.5.23): full pages enter a radix tree after a part of the
 * prompt was computed and when the request ends, and stay there until room is needed.
 */
export class RadixCache<Chain extends HashChain> implements KvCache<RadixSeat<Chain>, Chain> {
  readonly #options: RadixCacheOptions<Chain>;
  readonly #tree: RadixTree<Chain>;
  #freePages: number;
  /** What the sequences that extend their prompts in the step being planned will take. */
  #extendTokens = 0;
  #extendPages = 0;
  #extending = 0;
  /** Pages that decoding sequences took in the step being planned. */
  #decodePages = 0;

  constructor(options: RadixCacheOptions<Chain>) {
    this.#options = options;
    this.#tree = new RadixTree(options.log, options.offload);
    this.#freePages = options.blockCount;
    // SGLang starts with a reset and announces it.
    options.log.cleared();
  }

  open(chain: Chain): RadixSeat<Chain> {
    return { chain, node: this.#tree.root, treePages: 0, pages: 0, tokens: 0 };
  }

  match(seat: RadixSeat<Chain>, limitTokens: number): number {
    const { blockSize, prefixCaching } = this.#options;
    const { root } = this.#tree;
    const limit = Math.floor(limitTokens / blockSize);
    seat.node = root;
    seat.treePages = 0;
    if (!prefixCaching || limit === 0) return 0;
    seat.chain.hashBlocks(limit);
    seat.node = this.#tree.match(seat.chain, limit);
    for (let node = seat.node; node !== root; node = node.parent!) seat.treePages += node.lanes.length / 2;
    return seat.treePages * blockSize;
  }

  admit(seat: RadixSeat<Chain>, tokens: number, roomTokens: number): boolean {
    this.#tree.lock(seat.node);
    if (this.#pagesFor(roomTokens) - seat.treePages > this.#roomLeft()) {
      this.#tree.unlock(seat.node);
      return false;
    }
    seat.pages = seat.treePages;
    seat.tokens = seat.treePages * this.#options.blockSize;
    this.#promise(seat, tokens);
    return true;
  }

  grow(seat: RadixSeat<Chain>, tokens: number): boolean {
    if (tokens <= seat.tokens) return true;
    const pages = this.#pagesFor(tokens);
    const wanted = pages - seat.pages;
    if (wanted > this.#roomLeft()) return false;
    if (tokens <= seat.chain.promptTokens) {
      this.#promise(seat, tokens);
      return true;
    }
    this.#makeRoom(wanted);
    this.#freePages -= wanted;
    this.#decodePages += wanted;
    seat.pages = pages;
    seat.tokens = tokens;
    return true;
  }

  idleUpTo(seat: RadixSeat<Chain>): number {
    return seat.pages * this.#options.blockSize;
  }

  entersNext(): boolean {
    return false;
  }

  planned(decodes: number): void {
    const { blockSize } = this.#options;
    if (this.#extending > 0) {
      // The engine makes room for one page more per request than the tokens need, unless pages are single tokens.
      const spare = blockSize === 1 ? 0 : this.#extending;
      this.#makeRoom(Math.max(this.#extendPages, this.#pagesFor(this.#extendTokens) + spare));
      this.#freePages -= this.#extendPages;
      this.#extendPages = 0;
      this.#extendTokens = 0;
      this.#extending = 0;
    }
    // Before a decode it makes sure of a page for every sequence, whether needed or not.
    if (blockSize > 1) this.#makeRoom(decodes - this.#decodePages);
    this.#decodePages = 0;
  }

  isSettled(decodes: number): boolean {
    return this.#options.blockSize === 1 || this.#freePages >= decodes || this.#tree.evictablePages === 0;
  }

  computed(seat: RadixSeat<Chain>, tokens: number): void {
    if (this.#options.prefixCaching) this.#enter(seat, tokens);
  }

  release(seat: RadixSeat<Chain>, tokens: number, keep: boolean): void {
    if (keep && this.#options.prefixCaching) this.#enter(seat, tokens);
    this.#freePages += seat.pages - seat.treePages;
    this.#tree.unlock(seat.node);
    seat.node = this.#tree.root;
    seat.treePages = 0;
    seat.pages = 0;
    seat.tokens = 0;
  }

  reset(): boolean {
    const tree = this.#tree;
    const { blockCount } = this.#options;
    if (this.#freePages + tree.evictablePages < blockCount) return false;
    tree.reset();
    this.#freePages = blockCount;
    return true;
  }

  freeBlocks(): number {
    return this.#freePages + this.#tree.evictablePages;
  }

  cachedBlocks(): number {
    return this.#tree.pages;
  }

  #pagesFor(tokens: number): number {
    return Math.ceil(tokens / this.#options.blockSize);
  }

  /** Pages that a sequence can still have in the step being planned. */
  #roomLeft(): number {
    return this.#freePages + this.#tree.evictablePages - this.#extendPages;
  }

  /** Evicts until `pages` are free, or nothing can be evicted. */
  #makeRoom(pages: number): void {
    while (this.#freePages < pages) {
      const freed = this.#tree.evictOldest();
      if (freed === 0) return;
      this.#freePages += freed;
    }
  }

  /** Notes what a prompt will take. All prompts of a step are served at once, when every prefix in use is locked. */
  #promise(seat: RadixSeat<Chain>, tokens: number): void {
    const pages = this.#pagesFor(tokens);
    this.#extendPages += pages - seat.pages;
    this.#extendTokens += tokens - seat.tokens;
    this.#extending++;
    seat.pages = pages;
    seat.tokens = tokens;
  }

  /** Moves the seat's full pages below `tokens` into the tree; copies of what was there already are given back. */
  #enter(seat: RadixSeat<Chain>, tokens: number): void {
    const { chain } = seat;
    const { blockSize } = this.#options;
    const full = Math.floor(tokens / blockSize);
    chain.hashBlocks(full);
    const { present, node } = this.#tree.insert(chain, full);
    // The prompt gets a node of its own, so that eviction can drop what was generated and leave the prompt.
    const promptPages = Math.floor(chain.promptTokens / blockSize);
    if (promptPages > 0 && promptPages < full) this.#tree.insert(chain, promptPages);
    this.#freePages += Math.max(0, present - seat.treePages);
    this.#tree.lock(node);
    this.#tree.unlock(seat.node);
    seat.node = node;
    seat.treePages = full;
  }
}
