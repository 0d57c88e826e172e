import {
  type BlockRecords,
  createBlockIndex,
  createBlockRecords,
  createFreeQueue,
  HEAD,
  recordField,
} from "./block-pool.ts";
import type { CacheLog, HashChain } from "./kv-cache.ts";
import type { KvHold } from "./kv-pull.ts";

/** CPU memory behind the KV memory. */
export interface OffloadTier {
  /** Stores evicted content that has no other copy in KV memory: hashes of two words each, in order of position. */
  keep(hashes: Uint32Array): void;
  /** Stores the first `blocks` blocks of a chain, which are computed. */
  store(chain: HashChain, blocks: number): void;
  /**
   * How far a chain continues here after its first `fromTokens` tokens, which are whole blocks. A lookup counts as a use.
   *
   * @param limitTokens where the lookup ends
   * @returns the end in tokens; `fromTokens` when it does not continue
   */
  reach(chain: HashChain, fromTokens: number, limitTokens: number): number;
  /** Queues the transfer of `tokens` tokens back to the GPU. Returns when the last one arrives. */
  sendBack(tokens: number, nowMs: number): number;
  /** Pins what `reach` finds, for another engine; undefined when it finds nothing. */
  hold(chain: HashChain, fromTokens: number, limitTokens: number): KvHold | undefined;
  /** How many blocks `reserve` would get. */
  reservable(): number;
  /** Makes room for up to `blocks` blocks that another engine sends. */
  reserve(blocks: number): Reservation;
  /** Blocks in CPU memory. */
  blocks(): number;
  clear(): void;
}

/** Room for blocks that are on their way here. */
export interface Reservation {
  /**
   * Stores the blocks `from` to `to` (exclusive) of a chain as far as there is room, and gives the rest back.
   *
   * @returns where the stored ones end; `from` after a reset of the cache
   */
  fill(chain: HashChain, from: number, to: number): number;
  /** Gives all of it back. */
  cancel(): void;
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
 * engine's steps. All transfers back share one link. Blocks that another engine fetches are not evicted meanwhile.
 */
export function createOffloadTier({ capacity, blockSize, loadMsPerBlock, log }: OffloadTierOptions): OffloadTier {
  const slots = createBlockSlots(capacity);
  const evicted = new Uint32Array(2);
  const kept = new Uint32Array(2);
  let linkFreeMs = Number.NEGATIVE_INFINITY;

  /** Takes the slot that was used longest ago; -1 when all are in use. */
  const take = (): number => {
    const slot = slots.take(evicted);
    if (slot.wasTaken) log.discarded(evicted);
    return slot.number;
  };
  const put = (slot: number, a: number, b: number, chain?: HashChain, block?: number): void => {
    slots.insert(slot, a, b);
    kept[0] = a;
    kept[1] = b;
    log.offloaded(kept, chain, block);
  };
  /** Counts as a use, the last block first, so that the end of a prompt is evicted before its beginning. */
  const touchAll = (hashes: Uint32Array, from: number, to: number): void => {
    for (let at = to - 1; at >= from; at--) slots.touch(hashes[2 * at]!, hashes[2 * at + 1]!);
  };
  const endOf = (chain: HashChain, fromTokens: number, limitTokens: number): number => {
    const limit = Math.floor(limitTokens / blockSize);
    chain.hashBlocks(limit);
    const { hashes } = chain;
    let end = fromTokens / blockSize;
    while (end < limit && slots.find(hashes[2 * end]!, hashes[2 * end + 1]!) >= 0) end++;
    return end;
  };
  return {
    keep(hashes) {
      for (let at = Math.min(hashes.length / 2, capacity) - 1; at >= 0; at--) {
        const [a, b] = [hashes[2 * at]!, hashes[2 * at + 1]!];
        if (slots.touch(a, b)) continue;
        const slot = take();
        if (slot < 0) return;
        put(slot, a, b);
      }
    },
    store(chain, blocks) {
      const { hashes } = chain;
      const end = Math.min(blocks, capacity);
      // Blocks of this prompt must not make room for others of it.
      touchAll(hashes, 0, end);
      for (let at = 0; at < end; at++) {
        const [a, b] = [hashes[2 * at]!, hashes[2 * at + 1]!];
        if (slots.find(a, b) >= 0) continue;
        const slot = take();
        if (slot < 0) break;
        put(slot, a, b, chain, at);
      }
      touchAll(hashes, 0, end);
    },
    reach(chain, fromTokens, limitTokens) {
      const end = endOf(chain, fromTokens, limitTokens);
      touchAll(chain.hashes, fromTokens / blockSize, end);
      return end * blockSize;
    },
    sendBack(tokens, nowMs) {
      linkFreeMs = Math.max(linkFreeMs, nowMs) + (tokens / blockSize) * loadMsPerBlock;
      return linkFreeMs;
    },
    hold(chain, fromTokens, limitTokens) {
      const from = fromTokens / blockSize;
      const end = endOf(chain, fromTokens, limitTokens);
      if (end === from) return undefined;
      const pinned: number[] = [];
      for (let at = from; at < end; at++) {
        const slot = slots.find(chain.hashes[2 * at]!, chain.hashes[2 * at + 1]!);
        slots.pin(slot);
        pinned.push(slot);
      }
      const { epoch } = slots;
      let isHeld = true;
      return {
        toTokens: end * blockSize,
        release() {
          if (!isHeld || epoch !== slots.epoch) return false;
          isHeld = false;
          for (let at = pinned.length - 1; at >= 0; at--) slots.unpin(pinned[at]!);
          return true;
        },
      };
    },
    reservable: () => slots.evictable(),
    reserve(blocks) {
      const room: number[] = [];
      while (room.length < blocks) {
        const slot = take();
        if (slot < 0) break;
        slots.pin(slot);
        room.push(slot);
      }
      const { epoch } = slots;
      const isVoid = (): boolean => epoch !== slots.epoch;
      const cancel = (): void => {
        if (!isVoid()) for (let slot = room.pop(); slot !== undefined; slot = room.pop()) slots.giveBack(slot);
      };
      return {
        cancel,
        fill(chain, from, to) {
          if (isVoid()) return from;
          const { hashes } = chain;
          let end = from;
          for (; end < to; end++) {
            const [a, b] = [hashes[2 * end]!, hashes[2 * end + 1]!];
            if (slots.find(a, b) >= 0) continue;
            const slot = room.pop();
            if (slot === undefined) break;
            slots.unpin(slot);
            put(slot, a, b, chain, end);
          }
          cancel();
          touchAll(hashes, from, end);
          return end;
        },
      };
    },
    blocks: () => slots.size(),
    clear: () => slots.clear(),
  };
}

/** A bounded LRU set of block hashes with pinned entries. Every operation but `clear` takes constant time. */
interface BlockSlots {
  /** One more after each `clear`, which unpins everything. */
  readonly epoch: number;
  size(): number;
  /** Slots that are empty, or whose content may be evicted. */
  evictable(): number;
  /** The slot of a block; -1 when it is absent. */
  find(a: number, b: number): number;
  /** Counts as a use of a block. Returns whether it is there. */
  touch(a: number, b: number): boolean;
  /**
   * Evicts the content that was used longest ago, if no slot is empty. The slot stays the next one to be taken, unless
   * it is filled or pinned. Its number is -1 when every slot is pinned.
   *
   * @param evicted receives the hash of the evicted content
   */
  take(evicted: Uint32Array): { readonly number: number; readonly wasTaken: boolean };
  /** Fills an empty slot that is not pinned. */
  insert(slot: number, a: number, b: number): void;
  pin(slot: number): void;
  /** Counts as a use when it was the last pin. */
  unpin(slot: number): void;
  /** Unpins an empty slot, which is then the next one to be taken. */
  giveBack(slot: number): void;
  clear(): void;
}

const { words, hashA, hashB, references } = recordField;

/** @param capacity in blocks, at least 1 */
function createBlockSlots(capacity: number): BlockSlots {
  const records: BlockRecords = createBlockRecords(capacity);
  const index = createBlockIndex(records);
  // All slots that are not pinned, the empty ones first.
  const byAge = createFreeQueue(records);
  let size = 0;
  let epoch = 0;
  const isPinned = (slot: number): boolean => records[slot * words + references]! > 0;
  return {
    get epoch() {
      return epoch;
    },
    size: () => size,
    evictable: byAge.size,
    find: index.find,
    touch(a, b) {
      const slot = index.find(a, b);
      if (slot < 0) return false;
      if (isPinned(slot)) return true;
      byAge.remove(slot);
      byAge.append(slot);
      return true;
    },
    take(evicted) {
      if (byAge.size() === 0) return { number: -1, wasTaken: false };
      const number = byAge.take();
      byAge.insertAfter(HEAD, number);
      if (!index.has(number)) return { number, wasTaken: false };
      evicted[0] = records[number * words + hashA]!;
      evicted[1] = records[number * words + hashB]!;
      index.remove(number);
      size--;
      return { number, wasTaken: true };
    },
    insert(slot, a, b) {
      index.insert(slot, a, b);
      byAge.remove(slot);
      byAge.append(slot);
      size++;
    },
    pin(slot) {
      if (records[slot * words + references]!++ === 0) byAge.remove(slot);
    },
    unpin(slot) {
      if (--records[slot * words + references]! === 0) byAge.append(slot);
    },
    giveBack(slot) {
      records[slot * words + references] = 0;
      byAge.insertAfter(HEAD, slot);
    },
    clear() {
      index.clear();
      size = 0;
      epoch++;
      for (let slot = 0; slot < capacity; slot++) {
        if (!isPinned(slot)) continue;
        records[slot * words + references] = 0;
        byAge.append(slot);
      }
    },
  };
}
