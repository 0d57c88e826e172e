import {
  type BlockRecords,
  createBlockIndex,
  createBlockRecords,
  createFreeQueue,
  HEAD,
  recordField,
} from "./block-pool.ts";
import type { CacheLog, HashChain } from "./kv-cache.ts";
import type { KvHold, TokenRange } from "./kv-pull.ts";

/**
 * CPU memory behind the KV memory, in chunks of a fixed number of blocks. A chunk has the hash of its last block, which is
 * chained and so stands for everything before it.
 */
export interface OffloadTier {
  /** Stores blocks, of which a chunk has one: hashes of two words each, in order of position. */
  keep(hashes: Uint32Array): void;
  /**
   * Offers the chunks `from` to `to` (exclusive) of a chain, which are computed.
   *
   * @returns false, with nothing stored, when there is no room for all that are not here
   */
  offer(chain: HashChain, from: number, to: number): boolean;
  /** Counts as a use of the chunks `from` to `to` of a chain, the last one first. */
  use(chain: HashChain, from: number, to: number): void;
  /**
   * How far a chain continues here after its first `fromTokens` tokens, which are whole blocks.
   *
   * @param limitTokens where the lookup ends
   * @returns the end in tokens, after whole chunks; `fromTokens` when that brings less than a chunk
   */
  reach(chain: HashChain, fromTokens: number, limitTokens: number): number;
  /** Whether a part of a chain that `reach` found is on its way to the GPU for another request. */
  isLoading(chain: HashChain, fromTokens: number, toTokens: number): boolean;
  /** Queues the transfer of what `reach` found to the GPU, and keeps it here meanwhile. */
  load(chain: HashChain, range: TokenRange, nowMs: number): Load;
  /** Pins what `reach` finds, for another engine; undefined when it finds nothing. */
  hold(chain: HashChain, fromTokens: number, limitTokens: number): KvHold | undefined;
  /** How many blocks `reserve` would get. */
  reservable(): number;
  /** Makes room for up to `blocks` blocks that another engine sends. Only for chunks of one block. */
  reserve(blocks: number): Reservation;
  /** Blocks in CPU memory. */
  blocks(): number;
  clear(): void;
}

/** Chunks on their way to the GPU. */
export interface Load {
  /** When the last one arrives. */
  readonly readyMs: number;
  /** They have arrived, or nobody waits for them any more. */
  end(): void;
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
  /** Blocks per chunk; 1 by default. */
  readonly chunkBlocks?: number;
  /** Transfer time of one block back to the GPU, in milliseconds. */
  readonly loadMsPerBlock: number;
  readonly log: Pick<CacheLog<HashChain>, "offloaded" | "discarded">;
}

/**
 * CPU memory as in vLLM's offloading connector (`offloading/scheduler.py`, `kv_offload/cpu/manager.py`, 0.32): LRU
 * eviction in order of the ends of requests, and chunks that were loaded also stay here. Writes cost nothing, because they
 * overlap with the engine's steps. Chunks that are loaded or that another engine fetches are not evicted meanwhile.
 */
export function createOffloadTier(options: OffloadTierOptions): OffloadTier {
  const { blockSize, chunkBlocks = 1, loadMsPerBlock, log } = options;
  const capacity = Math.floor(options.capacity / chunkBlocks);
  const chunkTokens = chunkBlocks * blockSize;
  const slots = createBlockSlots(capacity);
  const link = createLoadLink(loadMsPerBlock);
  const kept = new Uint32Array(2);
  /** Hashes of all blocks of each chunk, where that is more than one. */
  const members = new Map<number, Uint32Array>();

  const find = (chain: HashChain, chunk: number): number => {
    const last = 2 * (chunk + 1) * chunkBlocks - 2;
    return slots.find(chain.hashes[last]!, chain.hashes[last + 1]!);
  };
  /** Empties slots, and tells of what was in them. */
  const evict = (room: readonly number[]): void => {
    const hashes: number[] = [];
    for (const slot of room) {
      const evicted = slots.evict(slot);
      if (!evicted) continue;
      hashes.push(...(members.get(slot) ?? evicted));
      members.delete(slot);
    }
    if (hashes.length > 0) log.discarded(Uint32Array.from(hashes));
  };
  const put = (slot: number, chain: HashChain, chunk: number): void => {
    const from = chunk * chunkBlocks;
    const hashes = chain.hashes.slice(2 * from, 2 * (from + chunkBlocks));
    if (chunkBlocks > 1) members.set(slot, hashes);
    slots.insert(slot, hashes[hashes.length - 2]!, hashes[hashes.length - 1]!);
    log.offloaded(hashes, chain, from);
  };
  const use = (chain: HashChain, from: number, to: number): void => {
    // The last chunk first, so that the end of a prompt is evicted before its beginning.
    for (let chunk = to - 1; chunk >= from; chunk--) {
      const slot = find(chain, chunk);
      if (slot >= 0) slots.touch(slot);
    }
  };
  const reach = (chain: HashChain, fromTokens: number, limitTokens: number): number => {
    const limit = Math.floor(limitTokens / chunkTokens);
    let end = Math.floor(fromTokens / chunkTokens);
    chain.hashBlocks(limit * chunkBlocks);
    while (end < limit && find(chain, end) >= 0) end++;
    return end * chunkTokens - fromTokens < chunkTokens ? fromTokens : end * chunkTokens;
  };
  const slotsOf = (chain: HashChain, { fromTokens, toTokens }: TokenRange): number[] => {
    const found: number[] = [];
    for (let chunk = Math.floor(fromTokens / chunkTokens); chunk * chunkTokens < toTokens; chunk++) {
      const slot = find(chain, chunk);
      if (slot >= 0) found.push(slot);
    }
    return found;
  };
  return {
    keep(hashes) {
      for (let at = Math.min(hashes.length / 2, capacity) - 1; at >= 0; at--) {
        kept.set(hashes.subarray(2 * at, 2 * at + 2));
        const found = slots.find(kept[0]!, kept[1]!);
        if (found >= 0) {
          slots.touch(found);
          continue;
        }
        const room = slots.room(1);
        if (!room) return;
        evict(room);
        slots.insert(room[0]!, kept[0]!, kept[1]!);
        log.offloaded(kept);
      }
    },
    offer(chain, from, to) {
      chain.hashBlocks(to * chunkBlocks);
      const offered = new Set<number>();
      const missing: number[] = [];
      for (let chunk = from; chunk < to; chunk++) {
        const slot = find(chain, chunk);
        if (slot >= 0) offered.add(slot);
        else missing.push(chunk);
      }
      const room = slots.room(missing.length, offered);
      if (!room) return false;
      evict(room);
      for (const [at, chunk] of missing.entries()) put(room[at]!, chain, chunk);
      return true;
    },
    use,
    reach,
    isLoading: (chain, fromTokens, toTokens) =>
      slotsOf(chain, { fromTokens, toTokens }).some((slot) => slots.isBusy(slot)),
    load(chain, range, nowMs) {
      const loading = slotsOf(chain, range);
      for (const slot of loading) slots.setBusy(slot, true);
      const { epoch } = slots;
      return {
        readyMs: link((range.toTokens - range.fromTokens) / blockSize, nowMs),
        end() {
          if (epoch === slots.epoch) for (const slot of loading.splice(0)) slots.setBusy(slot, false);
        },
      };
    },
    hold(chain, fromTokens, limitTokens) {
      const toTokens = reach(chain, fromTokens, limitTokens);
      if (toTokens === fromTokens) return undefined;
      const pinned = slotsOf(chain, { fromTokens, toTokens });
      for (const slot of pinned) slots.pin(slot);
      const { epoch } = slots;
      let isHeld = true;
      return {
        toTokens,
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
      const room = slots.room(Math.min(blocks, slots.evictable())) ?? [];
      evict(room);
      for (const slot of room) slots.pin(slot);
      const { epoch } = slots;
      const isVoid = (): boolean => epoch !== slots.epoch;
      const cancel = (): void => {
        if (!isVoid()) for (let slot = room.pop(); slot !== undefined; slot = room.pop()) slots.giveBack(slot);
      };
      return {
        cancel,
        fill(chain, from, to) {
          if (isVoid()) return from;
          let end = from;
          for (; end < to; end++) {
            if (find(chain, end) >= 0) continue;
            const slot = room.pop();
            if (slot === undefined) break;
            slots.unpin(slot);
            put(slot, chain, end);
          }
          cancel();
          use(chain, from, end);
          return end;
        },
      };
    },
    blocks: () => slots.size() * chunkBlocks,
    clear() {
      slots.clear();
      members.clear();
    },
  };
}

/**
 * The link from CPU memory to the GPU, which all loads of an engine share.
 *
 * @returns a function that queues the transfer of a number of blocks at a time, and returns when the last one arrives
 */
export function createLoadLink(msPerBlock: number): (blocks: number, nowMs: number) => number {
  let freeMs = Number.NEGATIVE_INFINITY;
  return (blocks, nowMs) => {
    freeMs = Math.max(freeMs, nowMs) + blocks * msPerBlock;
    return freeMs;
  };
}

/** A bounded LRU set of hashes with pinned entries. `room` takes time for what it skips, `clear` for all. */
interface BlockSlots {
  /** One more after each `clear`, which unpins everything. */
  readonly epoch: number;
  size(): number;
  /** Slots that are empty, or whose content may be evicted. */
  evictable(): number;
  /** The slot of a hash; -1 when it is absent. */
  find(a: number, b: number): number;
  /** Counts as a use. */
  touch(slot: number): void;
  /**
   * Slots for new content: empty ones first, then those that were used longest ago.
   *
   * @param except slots that must keep their content
   * @returns undefined when there are fewer than `count`
   */
  room(count: number, except?: ReadonlySet<number>): number[] | undefined;
  /** Empties a slot. Returns the hash of its content; undefined when it had none. */
  evict(slot: number): Uint32Array | undefined;
  /** Fills an empty slot that is not pinned. */
  insert(slot: number, a: number, b: number): void;
  isBusy(slot: number): boolean;
  /** Content of a busy slot is not evicted. Its place in the order of use stays. */
  setBusy(slot: number, isBusy: boolean): void;
  pin(slot: number): void;
  /** Counts as a use when it was the last pin. */
  unpin(slot: number): void;
  /** Unpins an empty slot, which is then the next one to be taken. */
  giveBack(slot: number): void;
  clear(): void;
}

const { words, hashA, hashB, references } = recordField;

function createBlockSlots(capacity: number): BlockSlots {
  const records: BlockRecords = createBlockRecords(capacity);
  const index = createBlockIndex(records);
  // All slots that are not pinned, the empty ones first.
  const byAge = createFreeQueue(records);
  const busy = new Set<number>();
  let size = 0;
  let epoch = 0;
  const isPinned = (slot: number): boolean => records[slot * words + references]! > 0;
  return {
    get epoch() {
      return epoch;
    },
    size: () => size,
    evictable() {
      let count = byAge.size();
      for (const slot of busy) if (!isPinned(slot)) count--;
      return count;
    },
    find: index.find,
    touch(slot) {
      if (isPinned(slot)) return;
      byAge.remove(slot);
      byAge.append(slot);
    },
    room(count, except) {
      const found: number[] = [];
      for (let slot = byAge.after(HEAD); found.length < count; slot = byAge.after(slot)) {
        if (slot === HEAD) return undefined;
        if (!busy.has(slot) && !except?.has(slot)) found.push(slot);
      }
      return found;
    },
    evict(slot) {
      if (!index.has(slot)) return undefined;
      const hash = Uint32Array.of(records[slot * words + hashA]!, records[slot * words + hashB]!);
      index.remove(slot);
      size--;
      return hash;
    },
    insert(slot, a, b) {
      index.insert(slot, a, b);
      byAge.remove(slot);
      byAge.append(slot);
      size++;
    },
    isBusy: (slot) => busy.has(slot),
    setBusy(slot, isBusy) {
      if (isBusy) busy.add(slot);
      else busy.delete(slot);
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
      busy.clear();
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
