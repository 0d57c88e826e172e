import { createBlockIndex, createBlockRecords, createFreeQueue, recordField } from "./block-pool.ts";
import type { CacheLog, HashChain } from "./kv-cache.ts";

/** Where the blocks go that an engine's KV memory gives up, and come back from. */
export interface OffloadTier {
  /** KV memory gives up content that it has no other copy of: pairs of lanes, in order of position. */
  keep(lanes: Uint32Array): void;
  /**
   * How far a chain goes on here behind its first `fromTokens` tokens, which are whole blocks. Looking counts as a use.
   *
   * @param limitTokens no token from there on is looked for
   * @returns the tokens up to there; `fromTokens` where it does not go on
   */
  reach(chain: HashChain, fromTokens: number, limitTokens: number): number;
  /** Sends so many tokens back, behind those that are on their way already. Returns when the last one is there. */
  sendBack(tokens: number, nowMs: number): number;
  /** Blocks that are here. */
  blocks(): number;
  clear(): void;
}

interface OffloadTierOptions {
  /** In blocks. */
  readonly capacity: number;
  readonly blockSize: number;
  /** What one block takes on its way back, in milliseconds. */
  readonly loadMsPerBlock: number;
  readonly log: Pick<CacheLog<HashChain>, "offloaded" | "discarded">;
}

/**
 * CPU memory behind the KV memory, as SGLang's HiCache with the policy `write_back` and vLLM's offloading connector have it:
 * least recently used goes first, and what was sent back stays here as well. Writing costs nothing, for it happens beside
 * the engine's steps; all that comes back shares one link.
 */
export function createOffloadTier({ capacity, blockSize, loadMsPerBlock, log }: OffloadTierOptions): OffloadTier {
  const held: BlockLru = createBlockLru(capacity);
  const gone = new Uint32Array(2);
  const kept = new Uint32Array(2);
  let linkFreeMs = Number.NEGATIVE_INFINITY;
  return {
    keep(lanes) {
      // The last block first, so that the end of a prompt goes before its beginning.
      for (let at = Math.min(lanes.length / 2, capacity) - 1; at >= 0; at--) {
        const [a, b] = [lanes[2 * at]!, lanes[2 * at + 1]!];
        if (held.touch(a, b)) continue;
        if (held.put(a, b, gone)) log.discarded(gone);
        kept[0] = a;
        kept[1] = b;
        log.offloaded(kept);
      }
    },
    reach(chain, fromTokens, limitTokens) {
      const from = fromTokens / blockSize;
      const limit = Math.floor(limitTokens / blockSize);
      chain.hashBlocks(limit);
      const { lanes } = chain;
      let end = from;
      while (end < limit && held.has(lanes[2 * end]!, lanes[2 * end + 1]!)) end++;
      for (let at = end - 1; at >= from; at--) held.touch(lanes[2 * at]!, lanes[2 * at + 1]!);
      return end * blockSize;
    },
    sendBack(tokens, nowMs) {
      linkFreeMs = Math.max(linkFreeMs, nowMs) + (tokens / blockSize) * loadMsPerBlock;
      return linkFreeMs;
    },
    blocks: () => held.size(),
    clear: () => held.clear(),
  };
}

/** A bounded set of blocks by the two lanes of their hashes, in order of their last use. Everything takes constant time. */
interface BlockLru {
  size(): number;
  has(a: number, b: number): boolean;
  /** Counts as a use of a block. Returns whether it is there. */
  touch(a: number, b: number): boolean;
  /**
   * Enters a block that is not there. Where there is no room, the one that was not used for longest goes.
   *
   * @param gone where the lanes of that one are written
   * @returns whether one went
   */
  put(a: number, b: number, gone: Uint32Array): boolean;
  clear(): void;
}

const { words, laneA, laneB } = recordField;

/** @param capacity in blocks, at least 1 */
function createBlockLru(capacity: number): BlockLru {
  const records = createBlockRecords(capacity);
  const index = createBlockIndex(records);
  // All places are in the queue at all times, the empty ones first.
  const byAge = createFreeQueue(records);
  let size = 0;
  return {
    size: () => size,
    has: (a, b) => index.find(a, b) >= 0,
    touch(a, b) {
      const place = index.find(a, b);
      if (place < 0) return false;
      byAge.remove(place);
      byAge.append(place);
      return true;
    },
    put(a, b, gone) {
      const place = byAge.take();
      const isTaken = index.has(place);
      if (isTaken) {
        gone[0] = records[place * words + laneA]!;
        gone[1] = records[place * words + laneB]!;
        index.remove(place);
      } else size++;
      index.insert(place, a, b);
      byAge.append(place);
      return isTaken;
    },
    clear() {
      index.clear();
      size = 0;
    },
  };
}
