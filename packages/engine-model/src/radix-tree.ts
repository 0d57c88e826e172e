import type { CacheLog, HashChain } from "./kv-cache.ts";
import type { HostWrites } from "./types.ts";

/**
 * A run of pages that are evicted together, identified by their chained hashes. They are in GPU memory, in host memory or
 * in both. Above a node in GPU memory all are.
 */
export interface RadixNode extends HeapEntry {
  parent: RadixNode | undefined;
  /** By `childKey` of their first page. */
  readonly children: Map<number, RadixNode>;
  /** Two per page. */
  hashes: Uint32Array;
  /** Requests that lock this node, each through a node at or below it. */
  locks: number;
  readonly adapter: string | undefined;
  onGpu: boolean;
  inHost: boolean;
  /** Children in GPU memory. */
  gpuChildren: number;
  /** Requests that used it since it entered the tree. */
  uses: number;
  /** The last node of the load that brings this one to the GPU. */
  loadedFor: RadixNode | undefined;
  /** The heap of leaves that it is in. */
  leaves: LeafHeap<RadixNode> | undefined;
}

/** What a prompt finds: the deepest node in any memory, and the deepest one in GPU memory. */
export interface RadixMatch {
  readonly node: RadixNode;
  readonly gpuNode: RadixNode;
}

interface RadixTreeOptions<Chain extends HashChain> {
  readonly log: CacheLog<Chain>;
  /** Pages of host memory; 0 for none. */
  readonly hostPages: number;
  readonly hostWrites: HostWrites;
}

interface InsertedPrompt<Chain> {
  readonly chain: Chain;
  /** Its pages that become part of the tree. */
  readonly pages: number;
  /** Pages that the request shares with the tree already. */
  readonly sharedPages: number;
  /** Pages whose use by the request was counted. */
  readonly countedPages: number;
}

/** How much older than its child a parent counts after a match. */
const MATCH_STEP = 0.00001;
const NO_HASHES = new Uint32Array(0);

/**
 * The prefix tree of SGLang (`UnifiedTreeCore`, 0.5.23). Eviction removes whole nodes, the least recently accessed unlocked
 * leaf first. Access times are logical, as there.
 *
 * With host memory (HiCache) a leaf in GPU memory may have children that are in host memory only. Copies to host memory
 * take no time. Host memory evicts leaves that it alone has; with `write_back` first copies of what the GPU has, too.
 */
export class RadixTree<Chain extends HashChain> {
  readonly #options: RadixTreeOptions<Chain>;
  readonly #writesBack: boolean;
  /** Unlocked nodes in GPU memory, without children there. */
  readonly #gpuLeaves: LeafHeap<RadixNode> = createLeafHeap();
  /** Unlocked nodes without children, in host memory alone. */
  readonly #hostLeaves: LeafHeap<RadixNode> = createLeafHeap();
  /** With `write_back`: nodes in both memories, in the order in which they came to be, and some that were. */
  readonly #copies = new Set<RadixNode>();
  #clock = 0;
  #evictablePages = 0;
  #pages = 0;
  #hostUsed = 0;
  #root: RadixNode;

  constructor(options: RadixTreeOptions<Chain>) {
    this.#options = options;
    this.#writesBack = options.hostWrites === "write_back";
    this.#root = this.#createNode(undefined, NO_HASHES, undefined);
  }

  get root(): RadixNode {
    return this.#root;
  }

  /** Pages in unlocked nodes in GPU memory. */
  get evictablePages(): number {
    return this.#evictablePages;
  }

  /** Pages in GPU memory. */
  get pages(): number {
    return this.#pages;
  }

  /** Pages in host memory. */
  get hostPages(): number {
    return this.#hostUsed;
  }

  /** The deepest nodes on a chain's path within its first `limit` pages, after a split where the path ends inside one. */
  match(chain: HashChain, limit: number): RadixMatch {
    let node = this.#root;
    let gpuNode = node;
    let at = 0;
    while (at < limit) {
      const child = node.children.get(childKey(chain.hashes, at));
      if (!child) break;
      const length = child.hashes.length / 2;
      const shared = sharedPages(child.hashes, chain.hashes, at, limit);
      node = shared < length ? this.#split(child, shared) : child;
      if (node.onGpu) gpuNode = node;
      at += shared;
      if (shared < length) break;
    }
    let time = this.#clock++;
    for (let passed: RadixNode | undefined = node; passed; passed = passed.parent) {
      touch(passed, time);
      time -= MATCH_STEP;
    }
    return { node, gpuNode };
  }

  /**
   * Makes pages of a chain, which are computed, part of the tree.
   *
   * @returns their last node, and how many of those that the request does not share yet were present in GPU memory
   */
  insert({ chain, pages, sharedPages: owned, countedPages }: InsertedPrompt<Chain>): {
    readonly duplicates: number;
    readonly node: RadixNode;
  } {
    const { log } = this.#options;
    let node = this.#root;
    let at = 0;
    let duplicates = 0;
    touch(node, this.#clock++);
    while (at < pages) {
      const child = node.children.get(childKey(chain.hashes, at));
      if (!child) break;
      touch(child, this.#clock++);
      const shared = sharedPages(child.hashes, chain.hashes, at, pages);
      node = shared < child.hashes.length / 2 ? this.#split(child, shared) : child;
      if (node.onGpu) {
        duplicates += Math.max(0, shared - Math.max(0, owned - at));
      } else {
        this.#putOnGpu(node);
        this.#noteCopy(node);
        log.stored(chain, at, at + shared);
      }
      at += shared;
      if (at > countedPages) this.#countUse(node);
    }
    if (at === pages) return { duplicates, node };
    const leaf = this.#createNode(node, chain.hashes.slice(2 * at, 2 * pages), chain.adapter);
    node.children.set(childKey(leaf.hashes, 0), leaf);
    this.#putOnGpu(leaf);
    log.stored(chain, at, pages);
    this.#countUse(leaf);
    return { duplicates, node: leaf };
  }

  /** Keeps a node and those above it from being evicted. */
  lock(bottom: RadixNode): void {
    for (let node = bottom; node !== this.#root; node = node.parent!) {
      if (node.locks++ === 0 && node.onGpu) this.#evictablePages -= node.hashes.length / 2;
      this.#settle(node);
    }
  }

  unlock(bottom: RadixNode): void {
    for (let node = bottom; node !== this.#root; node = node.parent!) {
      if (--node.locks === 0 && node.onGpu) this.#evictablePages += node.hashes.length / 2;
      this.#settle(node);
    }
  }

  /**
   * Evicts the oldest unlocked leaf from GPU memory. It stays in host memory, if it is there or has to be written there and
   * fits.
   *
   * @returns its pages; 0 when there is none
   */
  evictOldest(): number {
    const { log } = this.#options;
    const leaf = this.#gpuLeaves.oldest();
    if (!leaf) return 0;
    const parent = leaf.parent!;
    const freed = leaf.hashes.length / 2;
    const isKept = leaf.inHost || (this.#writesBack && this.#writeToHost(leaf));
    if (!isKept) {
      this.#dropBelow(leaf);
      this.#removeNode(leaf);
    }
    leaf.onGpu = false;
    parent.gpuChildren--;
    this.#pages -= freed;
    this.#evictablePages -= freed;
    log.removed(leaf.hashes, leaf.adapter);
    this.#settle(leaf);
    this.#settle(parent);
    return freed;
  }

  /** Pages of the nodes from below `top`, which is above `bottom`, to `bottom`. */
  pagesBetween(top: RadixNode, bottom: RadixNode): number {
    let pages = 0;
    for (let node = bottom; node !== top; node = node.parent!) pages += node.hashes.length / 2;
    return pages;
  }

  /**
   * Puts locked nodes that are in host memory on the GPU, where pages are free for them: those down to `bottom`.
   *
   * @param fromPage where they begin in the chain
   * @param toPage where they end
   */
  load(bottom: RadixNode, chain: Chain, fromPage: number, toPage: number): void {
    for (let node = bottom; !node.onGpu && node !== this.#root; node = node.parent!) {
      this.#putOnGpu(node);
      node.loadedFor = bottom;
    }
    this.#options.log.stored(chain, fromPage, toPage);
  }

  /** A load has ended: from now on its pages may leave host memory. */
  loaded(bottom: RadixNode): void {
    for (let node = bottom; node !== this.#root; node = node.parent!) {
      if (node.loadedFor !== bottom) continue;
      node.loadedFor = undefined;
      this.#noteCopy(node);
    }
  }

  /** Clears the tree. Nothing may be locked. */
  reset(): void {
    this.#gpuLeaves.clear();
    this.#hostLeaves.clear();
    this.#copies.clear();
    this.#root = this.#createNode(undefined, NO_HASHES, undefined);
    this.#pages = 0;
    this.#evictablePages = 0;
    this.#hostUsed = 0;
    this.#options.log.cleared();
  }

  #createNode(parent: RadixNode | undefined, hashes: Uint32Array, adapter: string | undefined): RadixNode {
    const accessed = this.#clock;
    // The engine draws a second time for the creation time of a node.
    this.#clock += 2;
    return {
      ...{ parent, children: new Map(), hashes, adapter, accessed, heapIndex: -1, leaves: undefined },
      ...{ locks: 0, onGpu: parent === undefined, inHost: false, gpuChildren: 0, uses: 0, loadedFor: undefined },
    };
  }

  #putOnGpu(node: RadixNode): void {
    const pages = node.hashes.length / 2;
    node.onGpu = true;
    node.parent!.gpuChildren++;
    this.#pages += pages;
    if (node.locks === 0) this.#evictablePages += pages;
    this.#settle(node);
    this.#settle(node.parent!);
  }

  /** Adds a node to the heap of leaves where it belongs, or removes it from the one where it does not. */
  #settle(node: RadixNode): void {
    let leaves: LeafHeap<RadixNode> | undefined;
    if (node !== this.#root && node.locks === 0) {
      if (node.onGpu && node.gpuChildren === 0) leaves = this.#gpuLeaves;
      else if (!node.onGpu && node.inHost && node.children.size === 0) leaves = this.#hostLeaves;
    }
    if (leaves === node.leaves) return;
    node.leaves?.remove(node);
    leaves?.add(node);
    node.leaves = leaves;
  }

  #removeNode(node: RadixNode): void {
    node.parent!.children.delete(childKey(node.hashes, 0));
    this.#copies.delete(node);
    node.inHost = false;
  }

  /** Cuts a node in two after `at` pages, which counts as an access to its lower part. Returns the upper part. */
  #split(node: RadixNode, at: number): RadixNode {
    const parent = node.parent!;
    const upper = this.#createNode(parent, node.hashes.slice(0, 2 * at), node.adapter);
    const { locks, onGpu, inHost, uses, loadedFor } = node;
    Object.assign(upper, { locks, onGpu, inHost, uses, loadedFor, gpuChildren: onGpu ? 1 : 0 });
    parent.children.set(childKey(node.hashes, 0), upper);
    node.parent = upper;
    node.hashes = node.hashes.slice(2 * at);
    upper.children.set(childKey(node.hashes, 0), node);
    touch(node, this.#clock++);
    this.#noteCopy(upper);
    return upper;
  }

  /** Counts that a request used a node, and writes it to host memory when it is time. */
  #countUse(node: RadixNode): void {
    const { hostPages, hostWrites } = this.#options;
    if (hostPages === 0 || this.#writesBack) return;
    node.uses++;
    if (node.inHost || node.uses < (hostWrites === "write_through" ? 1 : 2)) return;
    const missing = [node];
    for (let above = node.parent!; above !== this.#root && !above.inHost; above = above.parent!) missing.push(above);
    while (missing.length > 0 && this.#writeToHost(missing.pop()!));
  }

  /** @returns whether host memory had room */
  #writeToHost(node: RadixNode): boolean {
    const { log, hostPages } = this.#options;
    const pages = node.hashes.length / 2;
    const wanted = pages - (hostPages - this.#hostUsed);
    if (wanted > 0 && this.#evictFromHost(wanted) < wanted) return false;
    this.#hostUsed += pages;
    node.inHost = true;
    this.#noteCopy(node);
    log.offloaded(node.hashes);
    return true;
  }

  /** Evicts about `wanted` pages from host memory. Returns how many. */
  #evictFromHost(wanted: number): number {
    let freed = this.#dropCopies(wanted);
    while (freed < wanted) {
      const leaf = this.#hostLeaves.oldest();
      if (!leaf) break;
      freed += this.#leaveHost(leaf);
      this.#removeNode(leaf);
      this.#settle(leaf);
      this.#settle(leaf.parent!);
    }
    return freed;
  }

  /** Drops copies of what the GPU has, too: last those of leaves there, which will soon have no other. */
  #dropCopies(wanted: number): number {
    let freed = 0;
    for (const sparesLeaves of [true, false]) {
      for (const node of this.#copies) {
        if (freed >= wanted) return freed;
        if (node.onGpu && node.inHost) {
          if ((sparesLeaves && node.leaves) || node.loadedFor) continue;
          freed += this.#leaveHost(node);
        }
        this.#copies.delete(node);
      }
    }
    return freed;
  }

  /** Takes a node out of host memory. Returns its pages. */
  #leaveHost(node: RadixNode): number {
    const pages = node.hashes.length / 2;
    node.inHost = false;
    this.#hostUsed -= pages;
    this.#options.log.discarded(node.hashes);
    return pages;
  }

  #noteCopy(node: RadixNode): void {
    if (this.#writesBack && node.onGpu && node.inHost && !node.loadedFor) this.#copies.add(node);
  }

  /** Drops what is below a node that host memory has no room for: nodes in host memory, none of them locked. */
  #dropBelow(node: RadixNode): void {
    const found: RadixNode[] = [];
    const open = [...node.children.values()];
    for (let next = open.pop(); next; next = open.pop()) {
      found.push(next);
      open.push(...next.children.values());
    }
    for (let below = found.pop(); below; below = found.pop()) {
      this.#leaveHost(below);
      this.#removeNode(below);
      this.#settle(below);
    }
  }
}

function touch(node: RadixNode, time: number): void {
  node.accessed = time;
  node.leaves?.touched(node);
}

/** 53 bits of a page's hash, which is chained and so depends on everything before the page. */
function childKey(hashes: Uint32Array, page: number): number {
  return hashes[2 * page]! * 0x200000 + (hashes[2 * page + 1]! >>> 11);
}

/** How many pages of a node, from its first on, equal those of a chain from page `from` on, below page `limit`. */
function sharedPages(node: Uint32Array, chain: Uint32Array, from: number, limit: number): number {
  const most = Math.min(node.length, 2 * (limit - from));
  let at = 0;
  while (at < most && node[at] === chain[2 * from + at] && node[at + 1] === chain[2 * from + at + 1]) at += 2;
  return at / 2;
}

/** An evictable entry with its position in the heap. */
interface HeapEntry {
  /** Logical time of the last access. */
  accessed: number;
  /** Index in the heap, -1 outside. Only the heap writes it. */
  heapIndex: number;
}

/** A binary heap, oldest access first, whose entries know their index and can be removed. */
interface LeafHeap<Entry extends HeapEntry> {
  add(entry: Entry): void;
  remove(entry: Entry): void;
  /** The least recently accessed entry. */
  oldest(): Entry | undefined;
  /** Restores the order after the access time of an entry grew. */
  touched(entry: Entry): void;
  clear(): void;
}

function createLeafHeap<Entry extends HeapEntry>(): LeafHeap<Entry> {
  const heap: Entry[] = [];

  const put = (entry: Entry, at: number): void => {
    heap[at] = entry;
    entry.heapIndex = at;
  };
  const up = (entry: Entry, from: number): void => {
    let at = from;
    while (at > 0) {
      const parent = heap[(at - 1) >> 1]!;
      if (parent.accessed <= entry.accessed) break;
      put(parent, at);
      at = (at - 1) >> 1;
    }
    put(entry, at);
  };
  const down = (entry: Entry, from: number): void => {
    let at = from;
    for (let child = 2 * at + 1; child < heap.length; child = 2 * at + 1) {
      const right = heap[child + 1];
      if (right && right.accessed < heap[child]!.accessed) child++;
      if (heap[child]!.accessed >= entry.accessed) break;
      put(heap[child]!, at);
      at = child;
    }
    put(entry, at);
  };
  return {
    add(entry) {
      heap.push(entry);
      up(entry, heap.length - 1);
    },
    remove(entry) {
      const at = entry.heapIndex;
      const last = heap.pop()!;
      entry.heapIndex = -1;
      if (last === entry) return;
      down(last, at);
      up(last, last.heapIndex);
    },
    oldest: () => heap[0],
    touched: (entry) => down(entry, entry.heapIndex),
    clear() {
      for (const entry of heap) entry.heapIndex = -1;
      heap.length = 0;
    },
  };
}
