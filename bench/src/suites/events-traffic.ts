import type { Random } from "@espalier/core";
import { type EventDialect, encodeEventMessage, type WireEvent } from "@espalier/engine-model/kv-events";

export interface EventTrafficShape {
  readonly feeds: number;
  /** Blocks that each engine holds once warm. */
  readonly liveBlocks: number;
  /** Messages of each feed after it is warm. */
  readonly messagesPerFeed: number;
}

/** One message as it comes off a socket. */
export interface FeedMessage {
  readonly feed: number;
  readonly payload: Uint8Array;
}

/** The engines' messages in a possible order of arrival. Every block is stored under a parent that exists. */
export interface EventTraffic {
  readonly feeds: number;
  /** Blocks in each engine after the steady messages, and before. */
  readonly liveBlocks: number;
  /** Fills the engines: stores only. */
  readonly warmUp: readonly FeedMessage[];
  /** As many removals as stores. */
  readonly steady: readonly FeedMessage[];
  /** Blocks stored and removed by the steady messages, and their bytes. */
  readonly blockOps: number;
  readonly bytes: number;
}

export const blockSize = 16;
/** A step stores 1 to this many blocks in one event. */
export const maxBlocksPerStore = 8;
/** Share of stores that begin a prompt. */
const rootShare = 0.3;
/** A store that continues a chain picks one of this many newest chains. */
const growingChains = 64;
const vocabulary = 150_000;
/** Share of tokens that are single characters; the others follow Zipf's law over the rest of the vocabulary. */
const characterShare = 0.12;
const characters = 128;

/** Half of the feeds use vLLM's newer dialect, the others its older one and SGLang's. */
const dialects: readonly EventDialect[] = ["vllm-0.32", "vllm-0.23", "vllm-0.32", "sglang-0.5.23"];

/** Creates the traffic of engines in steady state. */
export function makeEventTraffic(shape: EventTrafficShape, random: Random): EventTraffic {
  const engines = Array.from({ length: shape.feeds }, () => createBlockSource(random));
  let stepCount = 0;
  const message = (feed: number, events: readonly WireEvent[]): FeedMessage => {
    const timestampS = 1_795_226_916 + stepCount++ / 1_000;
    const dialect = dialects[feed % dialects.length]!;
    return { feed, payload: encodeEventMessage(events, dialect, { timestampS, rank: 0 }) };
  };
  const warmUp: FeedMessage[] = [];
  for (const [feed, engine] of engines.entries()) {
    while (engine.live() < shape.liveBlocks) warmUp.push(message(feed, [engine.store(maxBlocksPerStore)]));
  }
  const steady: FeedMessage[] = [];
  let blockOps = 0;
  for (let step = 0; step < shape.messagesPerFeed; step++) {
    for (const [feed, engine] of engines.entries()) {
      const count = 1 + random.integer(maxBlocksPerStore);
      // Engines evict blocks first, and then store new ones.
      const removed = { type: "removed", hashes: engine.remove(count) } as const;
      steady.push(message(feed, [removed, engine.store(count)]));
      blockOps += 2 * count;
    }
  }
  const { feeds } = shape;
  const liveBlocks = engines[0]?.live() ?? 0;
  return {
    feeds,
    liveBlocks,
    warmUp,
    steady,
    blockOps,
    bytes: steady.reduce((sum, { payload }) => sum + payload.length, 0),
  };
}

interface BlockSource {
  live(): number;
  store(count: number): WireEvent;
  /** Removes that many blocks: the oldest chains first, and in each the deepest block first. */
  remove(count: number): bigint[];
}

function createBlockSource(random: Random): BlockSource {
  const chains: bigint[][] = [];
  let live = 0;
  return {
    live: () => live,
    store(count) {
      const hashes = Array.from({ length: count }, () => randomHash(random));
      const recent = Math.min(chains.length, growingChains);
      const isRoot = recent === 0 || random.float() < rootShare;
      const chain = isRoot ? [] : chains[chains.length - 1 - random.integer(recent)]!;
      if (isRoot) chains.push(chain);
      const parentHash = chain.at(-1);
      chain.push(...hashes);
      live += count;
      const tokens = Uint32Array.from({ length: count * blockSize }, () => randomToken(random));
      return { type: "stored", hashes, parentHash, tokens, blockSize, adapter: undefined, cacheSalt: undefined };
    },
    remove(count) {
      const hashes: bigint[] = [];
      while (hashes.length < count) {
        const hash = chains[0]!.pop()!;
        hashes.push(hash);
        if (chains[0]!.length === 0) chains.shift();
      }
      live -= count;
      return hashes;
    },
  };
}

function randomHash(random: Random): bigint {
  return (BigInt(random.integer(2 ** 32)) << 32n) | BigInt(random.integer(2 ** 32));
}

/** Byte-pair vocabularies number tokens by frequency. */
function randomToken(random: Random): number {
  if (random.float() < characterShare) return random.integer(characters);
  return Math.floor(characters * (vocabulary / characters) ** random.float());
}
