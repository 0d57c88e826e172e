import type { CacheLog, HashChain } from "./kv-cache.ts";
import type { OffloadTier } from "./offload-tier.ts";

/** A run of pages that are evicted together, identified by their chained hashes. */
export interface RadixNode extends HeapEntry {
  parent: RadixNode | undefined;
  /** By `childKey` of their first page. */
  readonly children: Map<number, RadixNode>;
  /** Two per page. */
  hashes: Uint32Array;
  /** Requests that lock this node, each through a node at or below it. */
  locks: number;
  readonly adapter: string | undefined;
}

/** How much older than its child a parent counts after a match. */
const MATCH_STEP = 0.00001;
const NO_HASHES = new Uint32Array(0);

/**
 * The prefix tree of SGLang (`UnifiedTreeCore`, 0.5.23). Eviction removes whole nodes, the least recently accessed unlocked
 * leaf first. Access times are logical, as there.
 */
export class RadixTree<Chain extends HashChain> {
  readonly #log: CacheLog<Chain>;
  readonly #offload: OffloadTier | undefined;
  /** The unlocked nodes without children. */
  readonly #leaves: LeafHeap<RadixNode> = createLeafHeap();
  #clock = 0;
  #evictablePages = 0;
  #pages = 0;
  #root: RadixNode;

  /** @param offload takes evicted content */
  constructor(log: CacheLog<Chain>, offload: OffloadTier | undefined) {
    this.#log = log;
    this.#offload = offload;
    this.#root = this.#createNode(undefined, NO_HASHES, 0, undefined);
  }

  get root(): RadixNode {
    return this.#root;
  }

  /** Pages in unlocked nodes. */
  get evictablePages(): number {
    return this.#evictablePages;
  }

  get pages(): number {
    return this.#pages;
  }

  /** The deepest node on a chain's path within its first `limit` pages, after a split where the path ends inside one. */
  match(chain: HashChain, limit: number): RadixNode {
    let node = this.#root;
    let at = 0;
    while (at < limit) {
      const child = node.children.get(childKey(chain.hashes, at));
      if (!child) break;
      const length = child.hashes.length / 2;
      const shared = sharedPages(child.hashes, chain.hashes, at, limit);
      node = shared < length ? this.#split(child, shared) : child;
      at += shared;
      if (shared < length) break;
    }
    let time = this.#clock++;
    for (let passed: RadixNode | undefined = node; passed; passed = passed.parent) {
      this.#touch(passed, time);
      time -= MATCH_STEP;
    }
    return node;
  }

  /**
   * Makes the first `limit` pages of a chain part of the tree.
   *
   * @returns their last node, and how many of them were present before
   */
  insert(chain: Chain, limit: number): { readonly present: number; readonly node: RadixNode } {
    let node = this.#root;
    let at = 0;
    this.#touch(node, this.#clock++);
    while (at < limit) {
      const child = node.children.get(childKey(chain.hashes, at));
      if (!child) break;
      this.#touch(child, this.#clock++);
      const shared = sharedPages(child.hashes, chain.hashes, at, limit);
      node = shared < child.hashes.length / 2 ? this.#split(child, shared) : child;
      at += shared;
    }
    if (at === limit) return { present: at, node };
    const leaf = this.#createNode(node, chain.hashes.slice(2 * at, 2 * limit), 0, chain.adapter);
    node.children.set(childKey(leaf.hashes, 0), leaf);
    this.#settle(leaf);
    this.#settle(node);
    this.#pages += limit - at;
    this.#evictablePages += limit - at;
    this.#log.stored(chain, at, limit);
    return { present: at, node: leaf };
  }

  /** Keeps a node and those above it from being evicted. */
  lock(bottom: RadixNode): void {
    for (let node = bottom; node !== this.#root; node = node.parent!) {
      if (node.locks++ === 0) this.#evictablePages -= node.hashes.length / 2;
      this.#settle(node);
    }
  }

  unlock(bottom: RadixNode): void {
    for (let node = bottom; node !== this.#root; node = node.parent!) {
      if (--node.locks === 0) this.#evictablePages += node.hashes.length / 2;
      this.#settle(node);
    }
  }

  /** Evicts the oldest unlocked leaf. Returns its pages; 0 when there is none. */
  evictOldest(): number {
    const leaf = this.#leaves.oldest();
    if (!leaf) return 0;
    const parent = leaf.parent!;
    parent.children.delete(childKey(leaf.hashes, 0));
    this.#leaves.remove(leaf);
    this.#settle(parent);
    const freed = leaf.hashes.length / 2;
    this.#pages -= freed;
    this.#evictablePages -= freed;
    this.#offload?.keep(leaf.hashes);
    this.#log.removed(leaf.hashes, leaf.adapter);
    return freed;
  }

  /** Clears the tree. Nothing may be locked. */
  reset(): void {
    this.#leaves.clear();
    this.#root = this.#createNode(undefined, NO_HASHES, 0, undefined);
    this.#pages = 0;
    this.#evictablePages = 0;
    this.#offload?.clear();
    this.#log.cleared();
  }

  #createNode(
    parent: RadixNode | undefined,
    hashes: Uint32Array,
    locks: number,
    adapter: string | undefined,
  ): RadixNode {
    const accessed = this.#clock;
    // The engine draws a second time for the creation time of a node.
    this.#clock += 2;
    return { parent, children: new Map(), hashes, locks, adapter, accessed, heapIndex: -1 };
  }

  #touch(node: RadixNode, time: number): void {
    node.accessed = time;
    if (node.heapIndex >= 0) this.#leaves.touched(node);
  }

  /** Adds a node to the heap of leaves or removes it, depending on its locks and children. */
  #settle(node: RadixNode): void {
    const isLeaf = node !== this.#root && node.locks === 0 && node.children.size === 0;
    if (isLeaf && node.heapIndex < 0) this.#leaves.add(node);
    else if (!isLeaf && node.heapIndex >= 0) this.#leaves.remove(node);
  }

  /** Cuts a node in two after `at` pages, which counts as an access to its lower part. Returns the upper part. */
  #split(node: RadixNode, at: number): RadixNode {
    const parent = node.parent!;
    const upper = this.#createNode(parent, node.hashes.slice(0, 2 * at), node.locks, node.adapter);
    parent.children.set(childKey(node.hashes, 0), upper);
    node.parent = upper;
    node.hashes = node.hashes.slice(2 * at);
    upper.children.set(childKey(node.hashes, 0), node);
    this.#touch(node, this.#clock++);
    return upper;
  }
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
