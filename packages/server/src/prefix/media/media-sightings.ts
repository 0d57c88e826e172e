import type { BlockDigests, Clock, Hash64 } from "@espalier/core";
import { attention, type EngineEventBatch, eventKind, type FeedLedger, tier } from "@espalier/prefix-index";
import type { BindingStore } from "@espalier/routing";
import { areRuns, isCount, parsedList, runsOf, tokensOfRuns } from "./media-rows.ts";

/** What an event said of blocks in which an image, audio or video begins. */
export interface MediaSighting {
  readonly engineBlockSize: number;
  /** Those that begin in the blocks, in order of place. */
  readonly ranges: readonly SightedRange[];
  /** The tokens of the blocks, up to one block after the last with a part that begins in the first one. */
  readonly tokens: Uint32Array;
  /** Blocks that the event announced from the first one on, and the chain hash of the last of them. */
  readonly blocks: number;
  readonly chain: Hash64;
}

interface SightedRange {
  readonly identifier: string;
  /** Its first token, from the start of the blocks. */
  readonly start: number;
  /** The last block with a token of it. */
  readonly lastBlock: number;
}

/** Sightings of one place that are kept: the latest of the engine. */
export const keptSightings = 8;
/** Sightings that a router shares within a second. */
export const maxSightingsPerSecond = 64;
/** Bytes of a sighting; a longer one is not shared. */
const maxBytes = 1_024;
/** Places whose next slot is remembered. */
const maxPlaces = 4_096;

/** How long routers can read a sighting. */
export const sightingTtlMs = 30_000;

/** Routers tell each other where engines have images and the like: who reads an engine's events rarely sent the prompt. */
export type MediaSightings = ReturnType<typeof createMediaSightings>;

export function createMediaSightings(store: Pick<BindingStore, "get" | "set" | "leftMs">, clock: Clock) {
  const slots = new Map<string, number>();
  let second = 0;
  let left = maxSightingsPerSecond;
  const write = (place: string, value: string): void => {
    const now = Math.floor(clock.nowMs() / 1_000);
    if (now !== second) [second, left] = [now, maxSightingsPerSecond];
    if (left === 0 || Buffer.byteLength(value) > maxBytes) return;
    const slot = ((slots.get(place) ?? -1) + 1) % keptSightings;
    slots.delete(place);
    slots.set(place, slot);
    if (slots.size > maxPlaces) slots.delete(slots.keys().next().value!);
    left--;
    store.set(`${place}\n${slot}`, value, sightingTtlMs);
  };
  return {
    /** Shares what the stored blocks of a batch say, after the ledger has applied it. */
    note(target: string, batch: EngineEventBatch, ledger: Pick<FeedLedger, "chainOf">, digests: BlockDigests): void {
      for (let event = 0; event < batch.count; event++) {
        const { blockKeys } = batch.detail[event] ?? {};
        const isFull = batch.attention[event] === attention.full && batch.tier[event] === tier.gpu;
        if (!blockKeys || !isFull || batch.kind[event] !== eventKind.stored) continue;
        for (const [parent, value] of sightingsOf(batch, event, blockKeys, ledger, digests)) {
          write(placeOf(target, parent), value);
        }
      }
    },
    /** What was sighted behind a prefix since a time. */
    after(target: string, prefix: Hash64, sinceMs: number): readonly MediaSighting[] {
      const found: MediaSighting[] = [];
      for (let slot = 0; slot < keptSightings; slot++) {
        const key = `${placeOf(target, prefix)}\n${slot}`;
        const seenMs = clock.nowMs() + store.leftMs(key) - sightingTtlMs;
        const text = seenMs < sinceMs ? undefined : store.get(key);
        const sighting = text === undefined ? undefined : readSighting(text);
        if (sighting) found.push(sighting);
      }
      return found;
    },
  };
}

const placeOf = (target: string, { low, high }: Hash64): string => `media-seen\n${target}\n${hexOf({ low, high })}`;

const hexOf = ({ low, high }: Hash64): string => `${(high >>> 0).toString(16)}.${(low >>> 0).toString(16)}`;

function* sightingsOf(
  batch: EngineEventBatch,
  event: number,
  blockKeys: readonly (string | undefined)[],
  ledger: Pick<FeedLedger, "chainOf">,
  digests: BlockDigests,
): Generator<readonly [Hash64, string]> {
  const firstHash = batch.hashStart[event]!;
  const blocks = batch.hashStart[event + 1]! - firstHash;
  const firstToken = batch.tokenStart[event]!;
  const size = (batch.tokenStart[event + 1]! - firstToken) / blocks;
  const chain = ledger.chainOf(batch.hashes, firstHash + blocks - 1);
  if (!isCount(size) || !chain) return;
  const ranges = rangesOf(blockKeys, size);
  const { adapter, cacheSalt } = batch.detail[event]!;
  const chainBefore = (block: number): Hash64 | undefined => {
    if (block > 0) return ledger.chainOf(batch.hashes, firstHash + block - 1);
    return batch.hasParent[event] === 1 ? ledger.chainOf(batch.parent, event) : digests.root(adapter, cacheSalt);
  };
  for (const block of new Set(ranges.map(({ start }) => Math.floor(start / size)))) {
    const parent = chainBefore(block);
    if (!parent) continue;
    const begun = ranges.filter(({ start }) => Math.floor(start / size) === block);
    // Where a part ends with a block, the next block shows that it does.
    const end = Math.min(blocks, 2 + Math.max(...begun.map(({ lastBlock }) => lastBlock))) * size;
    const inside = ranges.filter(({ start }) => start >= block * size && start < end);
    const listed = inside.map(({ identifier, start, lastBlock }) => [
      identifier,
      start - block * size,
      lastBlock - block,
    ]);
    const runs = runsOf(batch.tokens, firstToken + block * size, firstToken + end);
    yield [parent, JSON.stringify([size, listed, runs, blocks - block, chain.low, chain.high])];
  }
}

/** The parts that begin in an event's blocks, from the lists of `identifier@offset` with their lengths. */
function rangesOf(blockKeys: readonly (string | undefined)[], size: number): readonly SightedRange[] {
  const ranges = new Map<string, SightedRange>();
  for (const [block, keys = ""] of blockKeys.entries()) {
    for (let at = 0; at < keys.length; ) {
      const from = keys.indexOf(":", at) + 1;
      const end = from + Number(keys.slice(at, from - 1));
      if (from === 0 || !(end > from)) break;
      const key = keys.slice(from, end);
      at = end;
      const offset = Number(key.slice(key.lastIndexOf("@") + 1));
      const identifier = key.slice(0, key.lastIndexOf("@"));
      if (identifier === "" || !Number.isInteger(offset)) continue;
      const start = block * size + offset;
      const known = ranges.get(`${start} ${identifier}`);
      if (known || offset >= 0) ranges.set(`${start} ${identifier}`, { identifier, start, lastBlock: block });
    }
  }
  return [...ranges.values()];
}

/** @returns undefined for a text that is no sighting */
function readSighting(text: string): MediaSighting | undefined {
  const [engineBlockSize, ranges, runs, blocks, low, high] = parsedList(text);
  if (!isCount(engineBlockSize) || !isCount(blocks) || !isWord(low) || !isWord(high)) return undefined;
  if (!Array.isArray(ranges) || !Array.isArray(runs) || !areRuns(runs)) return undefined;
  const read = ranges.map((range) => (Array.isArray(range) ? (range as readonly unknown[]) : []));
  const isRange = (range: readonly unknown[]): range is readonly [string, number, number] =>
    typeof range[0] === "string" && isWord(range[1]) && isWord(range[2]);
  if (!read.every(isRange)) return undefined;
  return {
    engineBlockSize,
    ranges: read.map(([identifier, start, lastBlock]) => ({ identifier, start, lastBlock })),
    tokens: tokensOfRuns(runs),
    blocks,
    chain: { low, high },
  };
}

const isWord = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 0xffff_ffff;
