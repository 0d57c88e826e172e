import {
  type BlockIndex,
  type BlockRecords,
  createBlockIndex,
  createBlockRecords,
  createFreeQueue,
  type FreeQueue,
  recordField,
} from "./block-pool.ts";
import type { FreeOrder } from "./types.ts";

const { words, references, hashA, hashB } = recordField;

interface ReusableBlocksOptions {
  readonly blockCount: number;
  readonly prefixCaching: boolean;
  readonly freeOrder: FreeOrder;
  /** Receives content that is evicted. */
  readonly onEvicted: OnEvicted;
}

/**
 * @param hash its two words; the array is reused
 * @param wasLast whether no other block has the same content
 */
type OnEvicted = (hash: Uint32Array, block: number, wasLast: boolean, adapter: string | undefined) => void;

/**
 * vLLM's pool (`block_pool.py`): blocks that count the requests that use them, full ones under the hash of their content,
 * free ones in the order in which they are taken. Freeing keeps the content; only taking a free block evicts it.
 */
export class ReusableBlocks {
  readonly #onEvicted: OnEvicted;
  readonly #blockCount: number;
  readonly #uncachedFirst: boolean;
  readonly #records: BlockRecords;
  readonly #index: BlockIndex;
  readonly #free: FreeQueue;
  /** Of blocks that are entered for an adapter. */
  readonly #adapters = new Map<number, string>();
  readonly #evictedHash = new Uint32Array(2);
  #cachedCount = 0;

  constructor({ blockCount, prefixCaching, freeOrder, onEvicted }: ReusableBlocksOptions) {
    this.#onEvicted = onEvicted;
    this.#blockCount = blockCount;
    this.#uncachedFirst = freeOrder === "uncached-first" || !prefixCaching;
    this.#records = createBlockRecords(blockCount);
    this.#index = createBlockIndex(this.#records);
    this.#free = createFreeQueue(this.#records);
  }

  /** Blocks that no request uses. */
  get freeCount(): number {
    return this.#free.size();
  }

  /** Blocks with reusable content, in use or free. */
  get cachedCount(): number {
    return this.#cachedCount;
  }

  /** The oldest block with this content, or -1. */
  find(a: number, b: number): number {
    return this.#index.find(a, b);
  }

  isFree(block: number): boolean {
    return this.#records[block * words + references] === 0;
  }

  /** One more request uses a block with content. */
  share(block: number): void {
    if (this.#records[block * words + references]!++ === 0) this.#free.remove(block);
  }

  /** Takes the next free block for one request, and evicts its content. One must be free. */
  take(): number {
    const block = this.#free.take();
    if (this.#index.has(block)) this.#evict(block);
    this.#records[block * words + references] = 1;
    return block;
  }

  /**
   * A request stops using a block. It gives back its last block first, so that the end of a request is evicted before its
   * beginning.
   *
   * @param uncachedTail what the call for the block after this one returned; `HEAD` for the last block
   */
  giveBack(block: number, uncachedTail: number): number {
    if (--this.#records[block * words + references]! > 0) return uncachedTail;
    if (!this.#uncachedFirst || this.#index.has(block)) {
      this.#free.append(block);
      return uncachedTail;
    }
    this.#free.insertAfter(uncachedTail, block);
    return block;
  }

  /** Makes the content of a block reusable. @returns whether no other block has it */
  enter(block: number, a: number, b: number, adapter: string | undefined): boolean {
    this.#cachedCount++;
    if (adapter !== undefined) this.#adapters.set(block, adapter);
    return this.#index.insert(block, a, b);
  }

  /** Drops all content; false, with nothing changed, while requests use blocks. */
  clear(): boolean {
    if (this.freeCount < this.#blockCount) return false;
    this.#index.clear();
    this.#adapters.clear();
    this.#cachedCount = 0;
    return true;
  }

  #evict(block: number): void {
    const wasLast = this.#index.remove(block);
    this.#cachedCount--;
    const adapter = this.#adapters.get(block);
    if (adapter !== undefined) this.#adapters.delete(block);
    this.#evictedHash[0] = this.#records[block * words + hashA]!;
    this.#evictedHash[1] = this.#records[block * words + hashB]!;
    this.#onEvicted(this.#evictedHash, block, wasLast, adapter);
  }
}
