import type { CacheLog, HashChain, KvCache } from "./kv-cache.ts";
import type { TokenRange } from "./kv-pull.ts";
import { createLoadLink } from "./offload-tier.ts";
import { type RadixNode, RadixTree } from "./radix-tree.ts";
import type { HostWrites } from "./types.ts";

/** The pages of one request: those it shares in the radix tree, and its own. */
interface RadixAllocation<Chain extends HashChain> {
  readonly chain: Chain;
  /** The tree node up to which it uses the tree's pages; locked once admitted. */
  node: RadixNode;
  /** Pages of the tree that it uses. */
  treePages: number;
  /** The last node of host memory that it is to load; undefined for none. */
  hostNode: RadixNode | undefined;
  /** The last node of the load that has begun. */
  loading: RadixNode | undefined;
  /** Pages whose use was counted. */
  countedPages: number;
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
  /** Pages of host memory; 0 for none. */
  readonly hostPages: number;
  readonly hostWrites: HostWrites;
  readonly loadMsPerPage: number;
}

/** HiCache loads nothing where that brings fewer tokens (`load_back_threshold`); they are computed. */
const minLoadTokens = 10;

/**
 * SGLang's cache (`unified_radix_cache.py`, `allocation.py`, 0.5.23): full pages enter a radix tree after a part of the
 * prompt was computed and when the request ends, and stay there until they are evicted.
 */
export class RadixCache<Chain extends HashChain> implements KvCache<RadixAllocation<Chain>, Chain> {
  readonly #options: RadixCacheOptions<Chain>;
  readonly #tree: RadixTree<Chain>;
  readonly #link: (pages: number, nowMs: number) => number;
  #freePages: number;
  /** Demand of the prompts that the planned step extends. */
  #extendTokens = 0;
  #extendPages = 0;
  #extending = 0;
  /** Pages that decoding sequences took in the planned step. */
  #decodePages = 0;

  constructor(options: RadixCacheOptions<Chain>) {
    this.#options = options;
    this.#tree = new RadixTree(options);
    this.#link = createLoadLink(options.loadMsPerPage);
    this.#freePages = options.blockCount;
    // SGLang starts with a reset and announces it.
    options.log.cleared();
  }

  open(chain: Chain): RadixAllocation<Chain> {
    const nothing = { treePages: 0, countedPages: 0, pages: 0, tokens: 0 };
    return { chain, node: this.#tree.root, hostNode: undefined, loading: undefined, ...nothing };
  }

  match(allocation: RadixAllocation<Chain>, limitTokens: number): number {
    const { blockSize, prefixCaching } = this.#options;
    const { root } = this.#tree;
    const limit = Math.floor(limitTokens / blockSize);
    allocation.node = root;
    allocation.treePages = 0;
    allocation.hostNode = undefined;
    if (!prefixCaching || limit === 0) return 0;
    allocation.chain.hashBlocks(limit);
    const { node, gpuNode } = this.#tree.match(allocation.chain, limit);
    allocation.node = gpuNode;
    allocation.treePages = this.#tree.pagesBetween(root, gpuNode);
    if (this.#tree.pagesBetween(gpuNode, node) * blockSize >= minLoadTokens) allocation.hostNode = node;
    return allocation.treePages * blockSize;
  }

  reach({ node, hostNode }: RadixAllocation<Chain>, matchedTokens: number): number {
    return matchedTokens + (hostNode ? this.#tree.pagesBetween(node, hostNode) * this.#options.blockSize : 0);
  }

  /** What is on its way is already found in GPU memory. */
  isLoading(): boolean {
    return false;
  }

  load(allocation: RadixAllocation<Chain>, { fromTokens, toTokens }: TokenRange, nowMs: number): number {
    allocation.loading = allocation.node;
    return this.#link((toTokens - fromTokens) / this.#options.blockSize, nowMs);
  }

  /** SGLang notes the end of a load after the step that waited for it. */
  loaded(): void {}

  admit(allocation: RadixAllocation<Chain>, tokens: number, requiredTokens: number): boolean {
    const tree = this.#tree;
    const { node, hostNode = node } = allocation;
    tree.lock(hostNode);
    if (this.#pagesFor(requiredTokens) - allocation.treePages > this.#availablePages()) {
      tree.unlock(hostNode);
      return false;
    }
    if (hostNode !== node) {
      const loaded = tree.pagesBetween(node, hostNode);
      this.#ensureFree(loaded);
      this.#freePages -= loaded;
      tree.load(hostNode, allocation.chain, allocation.treePages, allocation.treePages + loaded);
      allocation.node = hostNode;
      allocation.treePages += loaded;
    }
    allocation.pages = allocation.treePages;
    allocation.tokens = allocation.treePages * this.#options.blockSize;
    this.#reserve(allocation, tokens);
    return true;
  }

  grow(allocation: RadixAllocation<Chain>, tokens: number): boolean {
    if (tokens <= allocation.tokens) return true;
    const pages = this.#pagesFor(tokens);
    const wanted = pages - allocation.pages;
    if (wanted > this.#availablePages()) return false;
    if (tokens <= allocation.chain.promptTokens) {
      this.#reserve(allocation, tokens);
      return true;
    }
    this.#ensureFree(wanted);
    this.#freePages -= wanted;
    this.#decodePages += wanted;
    allocation.pages = pages;
    allocation.tokens = tokens;
    return true;
  }

  idleUpTo(allocation: RadixAllocation<Chain>): number {
    return allocation.pages * this.#options.blockSize;
  }

  entersNext(): boolean {
    return false;
  }

  planned(decodes: number): void {
    const { blockSize } = this.#options;
    if (this.#extending > 0) {
      // The engine frees one page more per request than the tokens need, unless pages are single tokens.
      const spare = blockSize === 1 ? 0 : this.#extending;
      this.#ensureFree(Math.max(this.#extendPages, this.#pagesFor(this.#extendTokens) + spare));
      this.#freePages -= this.#extendPages;
      this.#extendPages = 0;
      this.#extendTokens = 0;
      this.#extending = 0;
    }
    // Before a decode it ensures one free page per sequence, whether needed or not.
    if (blockSize > 1) this.#ensureFree(decodes - this.#decodePages);
    this.#decodePages = 0;
  }

  isSettled(decodes: number): boolean {
    return this.#options.blockSize === 1 || this.#freePages >= decodes || this.#tree.evictablePages === 0;
  }

  computed(allocation: RadixAllocation<Chain>, tokens: number): void {
    if (this.#options.prefixCaching) this.#enter(allocation, tokens);
    this.#endLoad(allocation);
  }

  release(allocation: RadixAllocation<Chain>, tokens: number, keep: boolean): void {
    if (keep && this.#options.prefixCaching) this.#enter(allocation, tokens);
    this.#endLoad(allocation);
    this.#freePages += allocation.pages - allocation.treePages;
    this.#tree.unlock(allocation.node);
    allocation.node = this.#tree.root;
    allocation.treePages = 0;
    allocation.countedPages = 0;
    allocation.pages = 0;
    allocation.tokens = 0;
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

  cpuBlocks(): number {
    return this.#tree.hostPages;
  }

  #endLoad(allocation: RadixAllocation<Chain>): void {
    if (allocation.loading) this.#tree.loaded(allocation.loading);
    allocation.loading = undefined;
  }

  #pagesFor(tokens: number): number {
    return Math.ceil(tokens / this.#options.blockSize);
  }

  /** Pages that are still available to the planned step. */
  #availablePages(): number {
    return this.#freePages + this.#tree.evictablePages - this.#extendPages;
  }

  /** Evicts until `pages` are free, or nothing is evictable. */
  #ensureFree(pages: number): void {
    while (this.#freePages < pages) {
      const freed = this.#tree.evictOldest();
      if (freed === 0) return;
      this.#freePages += freed;
    }
  }

  /** Reserves the pages of a prompt. All prompts of a step get their pages together, once every prefix in use is locked. */
  #reserve(allocation: RadixAllocation<Chain>, tokens: number): void {
    const pages = this.#pagesFor(tokens);
    this.#extendPages += pages - allocation.pages;
    this.#extendTokens += tokens - allocation.tokens;
    this.#extending++;
    allocation.pages = pages;
    allocation.tokens = tokens;
  }

  /** Moves the allocation's full pages below `tokens` into the tree; duplicate pages are freed. */
  #enter(allocation: RadixAllocation<Chain>, tokens: number): void {
    const { chain } = allocation;
    const { blockSize } = this.#options;
    const full = Math.floor(tokens / blockSize);
    chain.hashBlocks(full);
    const { treePages: sharedPages, countedPages } = allocation;
    const { duplicates, node } = this.#tree.insert({ chain, pages: full, sharedPages, countedPages });
    // The prompt gets its own node, so that eviction can drop the generated part and keep the prompt.
    const promptPages = Math.floor(chain.promptTokens / blockSize);
    if (promptPages > 0 && promptPages < full) {
      this.#tree.insert({ chain, pages: promptPages, sharedPages: promptPages, countedPages: promptPages });
    }
    this.#freePages += duplicates;
    this.#tree.lock(node);
    this.#tree.unlock(allocation.node);
    allocation.node = node;
    allocation.treePages = full;
    allocation.countedPages = Math.max(countedPages, full);
  }
}
