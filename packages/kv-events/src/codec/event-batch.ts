import type { EngineEventBatch } from "@espalier/prefix-index";

const firstEvents = 64;
const firstHashes = 256;
const firstTokens = 4_096;

/** An empty batch. Its arrays grow by `reserveEvents`, `reserveHashes` and `reserveTokens`. */
export function createEventBatch(): EngineEventBatch {
  return {
    timestampS: Number.NaN,
    rank: -1,
    count: 0,
    kind: new Uint8Array(firstEvents),
    hashes: new Uint32Array(2 * firstHashes),
    hashStart: new Uint32Array(firstEvents + 1),
    parent: new Uint32Array(2 * firstEvents),
    hasParent: new Uint8Array(firstEvents),
    tokens: new Uint32Array(firstTokens),
    tokenStart: new Uint32Array(firstEvents + 1),
    blockSize: new Uint32Array(firstEvents),
    tier: new Uint8Array(firstEvents),
    group: new Int32Array(firstEvents),
    partial: new Uint8Array(firstEvents),
    detail: new Array<undefined>(firstEvents).fill(undefined),
  };
}

/** Makes room for `count` events. Called before the first event of a message, so nothing has to be kept. */
export function reserveEvents(batch: EngineEventBatch, count: number): void {
  if (count <= batch.kind.length) return;
  const room = roomFor(count);
  batch.kind = new Uint8Array(room);
  batch.hashStart = new Uint32Array(room + 1);
  batch.parent = new Uint32Array(2 * room);
  batch.hasParent = new Uint8Array(room);
  batch.tokenStart = new Uint32Array(room + 1);
  batch.blockSize = new Uint32Array(room);
  batch.tier = new Uint8Array(room);
  batch.group = new Int32Array(room);
  batch.partial = new Uint8Array(room);
  batch.detail = new Array<undefined>(room).fill(undefined);
}

/** Makes room for `count` hashes in all, keeping those that are there. */
export function reserveHashes(batch: EngineEventBatch, count: number): void {
  if (2 * count > batch.hashes.length) batch.hashes = grown(batch.hashes, 2 * roomFor(count));
}

/** Makes room for `count` tokens in all, keeping those that are there. */
export function reserveTokens(batch: EngineEventBatch, count: number): void {
  if (count > batch.tokens.length) batch.tokens = grown(batch.tokens, roomFor(count));
}

function grown(words: Uint32Array, length: number): Uint32Array {
  const larger = new Uint32Array(length);
  larger.set(words);
  return larger;
}

/** The next power of two, so that growing costs a constant per entry over time. */
const roomFor = (count: number): number => 2 ** Math.ceil(Math.log2(count));
