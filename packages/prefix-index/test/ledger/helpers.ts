import type { BlockDigests } from "@espalier/core";
import {
  attention,
  type EngineEventBatch,
  type EventDetail,
  eventKind,
  resumePoint,
  tier,
} from "@espalier/prefix-index";
import type { LedgerSink } from "../../src/ledger/ledger-sink.ts";

/** An event as tests write it; hashes are engine hashes in hexadecimal or as numbers. */
export interface TestEvent {
  readonly kind: keyof typeof eventKind;
  readonly hashes?: readonly bigint[];
  readonly parent?: bigint | undefined;
  readonly tokens?: readonly number[];
  readonly blockSize?: number;
  readonly tier?: number;
  readonly group?: number;
  readonly attention?: keyof typeof attention;
  readonly window?: number;
  readonly detail?: Partial<EventDetail> | undefined;
}

/** The batch that a decoder would make of events. */
export function batchOf(...events: readonly TestEvent[]): EngineEventBatch {
  const hashes = events.flatMap((event) => event.hashes ?? []);
  const tokens = events.flatMap((event) => event.tokens ?? []);
  const batch: EngineEventBatch = {
    timestampS: Number.NaN,
    rank: -1,
    count: events.length,
    kind: Uint8Array.from(events, (event) => eventKind[event.kind]),
    hashes: wordsOf(hashes),
    hashStart: new Uint32Array(events.length + 1),
    parent: wordsOf(events.map((event) => event.parent ?? 0n)),
    hasParent: Uint8Array.from(events, (event) => (event.parent === undefined ? 0 : 1)),
    tokens: Uint32Array.from(tokens),
    tokenStart: new Uint32Array(events.length + 1),
    blockSize: Uint32Array.from(events, (event) => event.blockSize ?? 0),
    tier: Uint8Array.from(events, (event) => event.tier ?? tier.gpu),
    group: Int32Array.from(events, (event) => event.group ?? -1),
    attention: Uint8Array.from(events, (event) => attention[event.attention ?? "full"]),
    window: Uint32Array.from(events, (event) => event.window ?? 0),
    detail: events.map(({ detail }) =>
      detail ? { adapter: undefined, cacheSalt: undefined, blockKeys: undefined, ...detail } : undefined,
    ),
  };
  for (const [index, event] of events.entries()) {
    batch.hashStart[index + 1] = batch.hashStart[index]! + (event.hashes?.length ?? 0);
    batch.tokenStart[index + 1] = batch.tokenStart[index]! + (event.tokens?.length ?? 0);
  }
  return batch;
}

export function wordsOf(hashes: readonly bigint[]): Uint32Array {
  const words = new Uint32Array(hashes.length * 2);
  for (const [index, hash] of hashes.entries()) {
    words[2 * index] = Number(hash & 0xffff_ffffn);
    words[2 * index + 1] = Number((hash >> 32n) & 0xffff_ffffn);
  }
  return words;
}

export const hashAt = (words: Uint32Array, at: number): bigint =>
  (BigInt(words[2 * at + 1]!) << 32n) | BigInt(words[2 * at]!);

function mixWord(value: number, more: number): number {
  let mixed = Math.imul(value ^ more, 0x9e3779b1);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x85ebca6b);
  return (mixed ^ (mixed >>> 13)) >>> 0;
}

/** A simple hash, for tests of what is not about hashing. */
export const testDigests: BlockDigests = {
  contents(tokens, start, end, blockSize, out) {
    for (let at = start, word = 0; at + blockSize <= end; at += blockSize, word += 2) {
      let low = blockSize;
      let high = ~blockSize;
      for (let token = at; token < at + blockSize; token++) {
        low = mixWord(low, tokens[token]!);
        high = mixWord(high + low, tokens[token]!);
      }
      out[word] = low;
      out[word + 1] = high;
    }
  },
  mix(parent, contents, from, count, out) {
    let { low, high } = parent;
    for (let block = 0; block < count; block++) {
      low = mixWord(low ^ 0x5bd1e995, contents[from + 2 * block]!);
      high = mixWord(high + low, contents[from + 2 * block + 1]!);
      out[2 * block] = low;
      out[2 * block + 1] = high;
    }
  },
  keyed(contents, block, key) {
    for (let at = 0; at < key.length; at++) {
      contents[2 * block] = mixWord(contents[2 * block]!, key.charCodeAt(at));
      contents[2 * block + 1] = mixWord(contents[2 * block + 1]! + 1, key.charCodeAt(at));
    }
  },
  root(adapter, cacheSalt) {
    const name = `${adapter ?? "-"}/${cacheSalt ?? "-"}`;
    let low = 1;
    for (let at = 0; at < name.length; at++) low = mixWord(low, name.charCodeAt(at));
    return { low, high: mixWord(low, 7) };
  },
};

/** The chain hashes of a prompt's full blocks. */
export function chainOf(tokens: readonly number[], blockSize: number, root = testDigests.root(undefined, undefined)) {
  const blocks = Math.floor(tokens.length / blockSize);
  const contents = new Uint32Array(2 * blocks);
  const chain = new Uint32Array(2 * blocks);
  testDigests.contents(Uint32Array.from(tokens), 0, blocks * blockSize, blockSize, contents);
  testDigests.mix(root, contents, 0, blocks, chain);
  return Array.from({ length: blocks }, (_, block) => hashAt(chain, block));
}

/** Folds what a sink is told, and checks that it is told nothing twice. */
export class FoldingSink implements LedgerSink {
  /** Per tier. */
  readonly blocks: Set<bigint>[] = [new Set(), new Set(), new Set(), new Set()];
  readonly resumePoints = new Set<bigint>();
  readonly holes: Map<bigint, number>[] = [new Map(), new Map(), new Map(), new Map()];
  readonly log: string[] = [];
  clears = 0;

  stored(tier: number, words: Uint32Array, from: number, to: number): void {
    this.log.push(`stored ${tier} ${to - from}`);
    for (let at = from; at < to; at++) {
      const hash = hashAt(words, at);
      if (this.#setOf(tier).has(hash)) throw new Error(`stored twice in tier ${tier}: ${hash}`);
      this.#setOf(tier).add(hash);
      this.holes[tier]?.delete(hash);
    }
  }

  removed(tier: number, words: Uint32Array, from: number, to: number): void {
    this.log.push(`removed ${tier} ${to - from}`);
    for (let at = from; at < to; at++) {
      if (!this.#setOf(tier).delete(hashAt(words, at))) throw new Error(`removed, but not there: tier ${tier}`);
    }
  }

  orphaned(tier: number, words: Uint32Array, at: number, depthBlocks: number): void {
    this.log.push(`orphaned ${tier} ${depthBlocks}`);
    const hash = hashAt(words, at);
    if (this.holes[tier]!.has(hash) || this.blocks[tier]!.has(hash)) throw new Error("a hole twice, or no hole");
    this.holes[tier]!.set(hash, depthBlocks);
  }

  holeGone(tier: number, words: Uint32Array, at: number): void {
    this.log.push(`holeGone ${tier}`);
    if (!this.holes[tier]!.delete(hashAt(words, at))) throw new Error("a hole gone that was none");
  }

  cleared(): void {
    this.log.push("cleared");
    this.clears++;
    for (const set of this.blocks) set.clear();
    this.resumePoints.clear();
    for (const holes of this.holes) holes.clear();
  }

  #setOf(kind: number): Set<bigint> {
    return kind === resumePoint ? this.resumePoints : this.blocks[kind]!;
  }
}
