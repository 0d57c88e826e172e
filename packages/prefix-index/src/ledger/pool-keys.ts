import type { BlockDigests, Hash64 } from "@espalier/core";
import { attention, type EngineEventBatch, eventKind } from "../engine-events.ts";
import { externalChunks, tier } from "../tiers.ts";
import { maxRunBlocks } from "./chain-builder.ts";
import { maxBlockRatio } from "./held-blocks.ts";
import { type LedgerSink, SinkRuns } from "./ledger-sink.ts";
import { NodeMap } from "./node-map.ts";
import { NodeTable } from "./node-table.ts";

/**
 * Words of a name: the engines' hash of the block (low, high), the list that it was last in, flags, how often it was in
 * that list, and the chain hashes of the router's blocks in it (two words each). The flags are where a table marks what
 * it has released.
 */
const field = { hash: 0, list: 2, flags: 3, keys: 4, chain: 5 } as const;
const flag = { recent: 1, placed: 2 } as const;
/** Words of an inner block: its chain hash, and how many blocks of the pool contain it. */
const innerField = { chain: 0, count: 4 } as const;
/** Bound of a table. */
const maxInner = 0xff_fffe - 1;

/** Default bound of the engine blocks whose hashes are remembered for a KV pool that lists keys. */
const maxPoolNames = 1_048_576;
/** Names that are looked at, at most, to make room for one. */
const maxSearch = 1_024;

/** Why keys of a pool cannot be followed. */
export type PoolKeysFault =
  /** The engines' blocks are smaller than those of the router, or no multiple of them. */
  | "block-size-ratio"
  /** Engines name one block differently, so that they cannot fetch what others have stored. */
  | "different-hashes";

export interface PoolKeysOptions {
  /** Tokens per router block. */
  readonly blockSize: number;
  readonly digests: BlockDigests;
  /** Takes the pool's blocks, in the tier `external`. */
  readonly sink: LedgerSink;
  /** At most 2^24 - 2. */
  readonly maxNames?: number;
}

/**
 * Joins a pool that names blocks by the engines' hashes, without tokens, to the events of its engines, which have both.
 * A hash is remembered when the engine has dropped its block: the oldest names make room for new ones, but those of
 * blocks in the pool stay. A block is in the pool while a list has all keys of it.
 */
export class PoolKeys {
  readonly #blockSize: number;
  readonly #digests: BlockDigests;
  readonly #runs: SinkRuns;
  readonly #maxNames: number;
  #names: Names | undefined;
  #engineBlockSize = 0;
  #fault: PoolKeysFault | undefined;
  #list = 0;
  #unnamed = 0;
  #placed = 0;
  #hasReportedChunks = false;

  constructor({ blockSize, digests, sink, maxNames = maxPoolNames }: PoolKeysOptions) {
    this.#blockSize = blockSize;
    this.#digests = digests;
    this.#runs = new SinkRuns(sink);
    this.#maxNames = maxNames;
  }

  /** Router blocks in the pool. */
  get blocks(): number {
    return this.#placed + (this.#names?.inner.live ?? 0);
  }

  /** Keys of the last list that name no block of an engine. */
  get unnamedKeys(): number {
    return this.#unnamed;
  }

  get names(): number {
    return this.#names?.table.live ?? 0;
  }

  get byteLength(): number {
    const names = this.#names;
    if (names === undefined) return 0;
    const maps = names.byHash.byteLength + names.byChain.byteLength + names.innerByChain.byteLength;
    return names.table.byteLength + names.inner.byteLength + maps;
  }

  /** What was wrong since the last call. Nothing is known after a fault, and all is learned anew. */
  takeFault(): PoolKeysFault | undefined {
    const fault = this.#fault;
    this.#fault = undefined;
    return fault;
  }

  /** Learns the hashes in the events of an engine. */
  learn(batch: EngineEventBatch): void {
    for (let event = 0; event < batch.count && this.#fault === undefined; event++) {
      const isStored = batch.kind[event] === eventKind.stored && batch.attention[event] === attention.full;
      if (isStored && batch.tokenStart[event + 1]! > batch.tokenStart[event]!) this.#learnBlocks(batch, event);
    }
    if (this.#fault) this.clear();
  }

  beginList(): void {
    this.#list = (this.#list + 1) >>> 0;
    this.#unnamed = 0;
  }

  /** A key of the list: the engines' hash of a block, and no other part of that block. Two signed words. */
  key(low: number, high: number): void {
    const names = this.#names;
    const node = names?.byHash.find(low, high) ?? 0;
    if (names === undefined || node === 0) {
      this.#unnamed++;
      return;
    }
    const { words } = names.table;
    const at = node * names.table.stride;
    words[at + field.keys] = words[at + field.list] === this.#list ? words[at + field.keys]! + 1 : 1;
    words[at + field.list] = this.#list;
  }

  /**
   * The list has ended: blocks of which it lacks a key are gone.
   *
   * @param keysPerBlock keys of a complete block: one for each rank, say
   * @returns whether anything changed
   */
  endList(keysPerBlock: number): boolean {
    const names = this.#names;
    if (names === undefined) return false;
    const { words, stride, end } = names.table;
    let hasChanged = false;
    for (let node = 1; node < end; node++) {
      const at = node * stride;
      if (!names.table.isLive(node)) continue;
      const isIn = words[at + field.list] === this.#list && words[at + field.keys]! >= keysPerBlock;
      if (isIn === this.#isPlaced(names, node)) continue;
      hasChanged = true;
      if (isIn) this.#enter(names, node);
      else this.#leave(names, node);
    }
    this.#runs.flush();
    return hasChanged;
  }

  /** Forgets everything. */
  clear(): void {
    this.#names = undefined;
    this.#engineBlockSize = 0;
    this.#placed = 0;
    this.#hasReportedChunks = false;
    this.#unnamed = 0;
    this.#runs.cleared();
  }

  /** Writes the pool's blocks to an empty sink. */
  tellAll(sink: LedgerSink): void {
    const names = this.#names;
    if (names === undefined || !this.#hasReportedChunks) return;
    const runs = new SinkRuns(sink);
    this.#reportChunks(runs);
    for (let node = 1; node < names.inner.end; node++) {
      if (names.inner.isLive(node)) runs.add("stored", tier.external, names.inner.words, node * names.inner.stride);
    }
    for (let node = 1; node < names.table.end; node++) {
      if (!names.table.isLive(node) || !this.#isPlaced(names, node)) continue;
      runs.add("stored", tier.external, names.table.words, endAt(names, node));
    }
    runs.flush();
  }

  get #parts(): number {
    return this.#engineBlockSize / this.#blockSize;
  }

  #learnBlocks(batch: EngineEventBatch, event: number): void {
    const firstHash = batch.hashStart[event]!;
    const blocks = batch.hashStart[event + 1]! - firstHash;
    const start = batch.tokenStart[event]!;
    const tokens = batch.tokenStart[event + 1]! - start;
    const size = tokens / blocks;
    if (!Number.isInteger(size) || (batch.blockSize[event]! || size) !== size) return;
    // vLLM also announces tails of prompts, a part of a block each.
    if (size < this.#engineBlockSize && blocks === 1) return;
    if (size !== this.#engineBlockSize && !this.#adopt(size)) return;
    const names = this.#names!;
    const parts = this.#parts;
    const { adapter, cacheSalt, blockKeys } = batch.detail[event] ?? {};
    const head = this.#headOf(batch, event, adapter, cacheSalt);
    if (head === undefined) return;
    for (let done = 0; done < blocks; done += maxRunBlocks) {
      const count = Math.min(maxRunBlocks, blocks - done);
      const from = start + done * size;
      this.#digests.contents(batch.tokens, from, from + count * size, this.#blockSize, names.contents);
      for (let part = 0; blockKeys !== undefined && part < count * parts; part++) {
        const key = blockKeys[done + Math.floor(part / parts)];
        if (key !== undefined) this.#digests.keyed(names.contents, part, key);
      }
      this.#digests.mix(head, names.contents, 0, count * parts, names.chain);
      for (let block = 0; block < count; block++) {
        const hash = 2 * (firstHash + done + block);
        this.#name(names, batch.hashes[hash]! | 0, batch.hashes[hash + 1]! | 0, 2 * block * parts);
        if (this.#fault) return;
      }
      const last = 2 * (count * parts - 1);
      head.low = names.chain[last]!;
      head.high = names.chain[last + 1]!;
    }
  }

  /** Takes the size of the engines' blocks. Returns false if their names cannot be used. */
  #adopt(size: number): boolean {
    const parts = size / this.#blockSize;
    if (!Number.isInteger(parts) || parts > maxBlockRatio) this.#fault = "block-size-ratio";
    // What came before may have been tails of prompts, but not if it is in the pool.
    else if (size < this.#engineBlockSize || this.#placed > 0) this.#fault = "different-hashes";
    if (this.#fault) return false;
    this.#engineBlockSize = size;
    this.#names = createNames(parts, this.#maxNames);
    return true;
  }

  /** The chain hash before an event's first block; undefined if that is unknown. */
  #headOf(
    batch: EngineEventBatch,
    event: number,
    adapter: string | undefined,
    cacheSalt: string | undefined,
  ): { low: number; high: number } | undefined {
    if (batch.hasParent[event] !== 1) return { ...this.#digests.root(adapter, cacheSalt) };
    const names = this.#names!;
    const parent = names.byHash.find(batch.parent[2 * event]! | 0, batch.parent[2 * event + 1]! | 0);
    if (parent === 0) return undefined;
    const { words, stride } = names.table;
    words[parent * stride + field.flags]! |= flag.recent;
    const { low, high } = endOf(names, parent);
    return { low, high };
  }

  /** Remembers the hash of a block whose chain hashes begin at word `at` of `names.chain`. */
  #name(names: Names, low: number, high: number, at: number): void {
    const { table, byHash, byChain, chain, chainWords } = names;
    const endLow = chain[at + chainWords - 2]!;
    const endHigh = chain[at + chainWords - 1]!;
    const known = byHash.find(low, high);
    if (known !== 0) {
      const end = endOf(names, known);
      if (end.low !== endLow || end.high !== endHigh) this.#fault = "different-hashes";
      table.words[known * table.stride + field.flags]! |= flag.recent;
      return;
    }
    if (byChain.find(endLow, endHigh) !== 0) {
      this.#fault = "different-hashes";
      return;
    }
    if (!table.hasRoomFor(1) && !dropOldest(names)) return;
    const node = table.allocate();
    const word = node * table.stride;
    table.words[word + field.hash] = low;
    table.words[word + field.hash + 1] = high;
    table.words.set(chain.subarray(at, at + chainWords), word + field.chain);
    byHash.add(node);
    byChain.add(node);
  }

  #isPlaced({ table }: Names, node: number): boolean {
    return (table.words[node * table.stride + field.flags]! & flag.placed) !== 0;
  }

  #enter(names: Names, node: number): void {
    if (!this.#hasReportedChunks) this.#reportChunks(this.#runs);
    this.#hasReportedChunks = true;
    this.#changeInner(names, node, 1);
    this.#runs.add("stored", tier.external, names.table.words, endAt(names, node));
    names.table.words[node * names.table.stride + field.flags]! |= flag.placed;
    this.#placed++;
  }

  #leave(names: Names, node: number): void {
    this.#runs.add("removed", tier.external, names.table.words, endAt(names, node));
    this.#changeInner(names, node, -1);
    names.table.words[node * names.table.stride + field.flags]! &= ~flag.placed;
    this.#placed--;
  }

  /**
   * Counts the router's blocks before the last of a block that comes or goes: blocks that part inside have the first of
   * them in common.
   */
  #changeInner({ table, chainWords, inner, innerByChain }: Names, node: number, difference: 1 | -1): void {
    const from = node * table.stride + field.chain;
    for (let word = from; word < from + chainWords - 2; word += 2) {
      const [low, high] = [table.words[word]!, table.words[word + 1]!];
      let part = innerByChain.find(low, high);
      if (part === 0) {
        if (difference < 0 || !inner.hasRoomFor(1)) continue;
        part = inner.allocate();
        inner.words[part * inner.stride + innerField.chain] = low;
        inner.words[part * inner.stride + innerField.chain + 1] = high;
        innerByChain.add(part);
        this.#runs.add("stored", tier.external, table.words, word);
      }
      inner.words[part * inner.stride + innerField.count]! += difference;
      if (inner.words[part * inner.stride + innerField.count] !== 0) continue;
      this.#runs.add("removed", tier.external, table.words, word);
      innerByChain.remove(part);
      inner.release(part);
    }
  }

  /** Reports the size of the engines' blocks, if they are more than a block of the router: they are fetched whole. */
  #reportChunks(runs: SinkRuns): void {
    if (this.#parts > 1) runs.add("stored", tier.external, externalChunks(this.#parts, false), 0);
  }
}

type Names = ReturnType<typeof createNames>;

/** @param parts router blocks in a block of the engines */
function createNames(parts: number, maxNames: number) {
  const chainWords = 2 * parts;
  const table = new NodeTable(field.chain + chainWords, maxNames);
  const inner = new NodeTable(innerField.count + 1, Math.max(1, Math.min(maxInner, maxNames * (parts - 1))));
  return {
    table,
    /** Router blocks before the last one of a block in the pool. */
    inner,
    innerByChain: new NodeMap(inner, innerField.chain),
    chainWords,
    byHash: new NodeMap(table, field.hash),
    /** By the last of the chain hashes. */
    byChain: new NodeMap(table, field.chain + chainWords - 2),
    contents: new Uint32Array(maxRunBlocks * chainWords),
    chain: new Uint32Array(maxRunBlocks * chainWords),
    /** The node before which the search for the oldest name goes on. */
    hand: 1,
  };
}

/** The word of the last chain hash of a block. */
const endAt = ({ table, chainWords }: Names, node: number): number =>
  node * table.stride + field.chain + chainWords - 2;

function endOf(names: Names, node: number): Hash64 {
  const { table } = names;
  const at = endAt(names, node);
  return { low: table.words[at]!, high: table.words[at + 1]! };
}

/** Drops a name that was not used since the search last came by. Returns false if it met none, as all may be in the pool. */
function dropOldest(names: Names): boolean {
  const { table, byHash, byChain } = names;
  const { words, stride, end } = table;
  for (let steps = 0; steps < maxSearch; steps++) {
    const node = names.hand;
    names.hand = node + 1 < end ? node + 1 : 1;
    const at = node * stride + field.flags;
    if (!table.isLive(node) || (words[at]! & flag.placed) !== 0) continue;
    if ((words[at]! & flag.recent) === 0) {
      byHash.remove(node);
      byChain.remove(node);
      table.release(node);
      return true;
    }
    words[at]! &= ~flag.recent;
  }
  return false;
}
