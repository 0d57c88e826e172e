import { createBlockIndex, createBlockRecords, createFreeQueue, recordField } from "./block-pool.ts";
import type { CacheLog, HashChain } from "./kv-cache.ts";

/** CPU memory for blocks that the KV memory evicts. */
export interface OffloadTier {
  /** Stores evicted content that has no other copy in KV memory: hashes of two words each, in order of position. */
  keep(hashes: Uint32Array): void;
  /**
   * How far a chain continues here after its first `fromTokens` tokens, which are whole blocks. A lookup counts as a use.
   *
   * @param limitTokens where the lookup ends
   * @returns the end in tokens; `fromTokens` when it does not continue
   */
  reach(chain: HashChain, fromTokens: number, limitTokens: number): number;
  /** Queues the transfer of `tokens` tokens back to the GPU. Returns when the last one arrives. */
  sendBack(tokens: number, nowMs: number): number;
  /** Blocks in CPU memory. */
  blocks(): number;
  clear(): void;
}

interface OffloadTierOptions {
  /** In blocks. */
  readonly capacity: number;
  readonly blockSize: number;
  /** Transfer time of one block back to the GPU, in milliseconds. */
  readonly loadMsPerBlock: number;
  readonly log: Pick<CacheLog<HashChain>, "offloaded" | "discarded">;
}

/**
 * CPU memory behind the KV memory, as in SGLang's HiCache with the policy `write_back` and vLLM's offloading connector:
 * LRU eviction, and blocks that were sent back also stay here. Writes cost nothing, because they overlap with the
 * engine's steps. All transfers back share one link.
 */
export function createOffloadTier({ capacity, blockSize, loadMsPerBlock, log }: OffloadTierOptions): OffloadTier {
  const lru: BlockLru = createBlockLru(capacity);
  const evicted = new Uint32Array(2);
  const kept = new Uint32Array(2);
  let linkFreeMs = Number.NEGATIVE_INFINITY;
  return {
    keep(hashes) {
      // The last block first, so that the end of a prompt is evicted before its beginning.
      for (let at = Math.min(hashes.length / 2, capacity) - 1; at >= 0; at--) {
        const [a, b] = [hashes[2 * at]!, hashes[2 * at + 1]!];
        if (lru.touch(a, b)) continue;
        if (lru.put(a, b, evicted)) log.discarded(evicted);
        kept[0] = a;
        kept[1] = b;
        log.offloaded(kept);
      }
    },
    reach(chain, fromTokens, limitTokens) {
      const from = fromTokens / blockSize;
      const limit = Math.floor(limitTokens / blockSize);
      chain.hashBlocks(limit);
      const { hashes } = chain;
      let end = from;
      while (end < limit && lru.has(hashes[2 * end]!, hashes[2 * end + 1]!)) end++;
      for (let at = end - 1; at >= from; at--) lru.touch(hashes[2 * at]!, hashes[2 * at + 1]!);
      return end * blockSize;
    },
    sendBack(tokens, nowMs) {
      linkFreeMs = Math.max(linkFreeMs, nowMs) + (tokens / blockSize) * loadMsPerBlock;
      return linkFreeMs;
    },
    blocks: () => lru.size(),
    clear: () => lru.clear(),
  };
}

/** A bounded LRU set of block hashes. Every operation takes constant time. */
interface BlockLru {
  size(): number;
  has(a: number, b: number): boolean;
  /** Counts as a use of a block. Returns whether it is there. */
  touch(a: number, b: number): boolean;
  /**
   * Adds a block that is absent. A full set evicts its least recently used block.
   *
   * @param evicted receives the hash of that block
   * @returns whether a block was evicted
   */
  put(a: number, b: number, evicted: Uint32Array): boolean;
  clear(): void;
}

const { words, hashA, hashB } = recordField;

/** @param capacity in blocks, at least 1 */
function createBlockLru(capacity: number): BlockLru {
  const records = createBlockRecords(capacity);
  const index = createBlockIndex(records);
  // All slots are in the queue at all times, the empty ones first.
  const byAge = createFreeQueue(records);
  let size = 0;
  return {
    size: () => size,
    has: (a, b) => index.find(a, b) >= 0,
    touch(a, b) {
      const slot = index.find(a, b);
      if (slot < 0) return false;
      byAge.remove(slot);
      byAge.append(slot);
      return true;
    },
    put(a, b, evicted) {
      const slot = byAge.take();
      const isTaken = index.has(slot);
      if (isTaken) {
        evicted[0] = records[slot * words + hashA]!;
        evicted[1] = records[slot * words + hashB]!;
        index.remove(slot);
      } else size++;
      index.insert(slot, a, b);
      byAge.append(slot);
      return isTaken;
    },
    clear() {
      index.clear();
      size = 0;
    },
  };
}
