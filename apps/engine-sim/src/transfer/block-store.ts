import { createHash } from "node:crypto";
import type { WireEvent } from "@espalier/kv-events";

/** Which blocks a store outside the engines holds. Only their names are kept: what is in them follows from the content. */
export interface BlockStore {
  /** @param blocks of one prompt, in their order */
  put(blocks: readonly string[]): StoreChange;
  /** How many of these blocks, from the first one on, are there. */
  countFirst(blocks: readonly string[]): number;
  readonly size: () => number;
}

/** What came of blocks that were put into a store. */
export interface StoreChange {
  /** Places in the list of those that were not there. */
  readonly added: readonly number[];
  /** Names of those that gave way, after the others had come. */
  readonly removed: readonly string[];
}

/** Names of blocks that an engine's store keeps. */
export const maxStoredBlocks = 262_144;

/** @param capacity blocks that are kept; the one used longest ago gives way */
export function createBlockStore(capacity: number): BlockStore {
  const held = new Set<string>();
  const touch = (block: string): void => {
    held.delete(block);
    held.add(block);
  };
  return {
    put(blocks) {
      const added = Array.from(blocks.keys()).filter((place) => !held.has(blocks[place] as string));
      for (const block of blocks) touch(block);
      const removed: string[] = [];
      for (const oldest of held) {
        if (held.size <= capacity) break;
        held.delete(oldest);
        removed.push(oldest);
      }
      return { added, removed };
    },
    countFirst(blocks) {
      let count = 0;
      while (count < blocks.length && held.has(blocks[count] as string)) touch(blocks[count++] as string);
      return count;
    },
    size: () => held.size,
  };
}

/** What a prompt's blocks are made of. */
interface PromptContent {
  readonly prompt: Uint32Array;
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
}

/** Names of the full blocks of a prompt. Each depends on everything before it, on the adapter and on the salt. */
export function blockNames({ prompt, adapter, cacheSalt }: PromptContent, blockSize: number): string[] {
  const names: string[] = [];
  let previous = JSON.stringify([blockSize, adapter, cacheSalt]);
  for (let end = blockSize; end <= prompt.length; end += blockSize) {
    const tokens = prompt.subarray(end - blockSize, end);
    const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
    previous = createHash("sha256").update(previous).update(bytes).digest("base64url").slice(0, 22);
    names.push(previous);
  }
  return names;
}

/** What a change of a store is about: the blocks of one prompt. */
export interface PutPrompt extends PromptContent {
  readonly names: readonly string[];
  readonly blockSize: number;
}

/** What the pool calls memory that belongs to no engine. */
const medium = "EXTERNAL";

/** How a pool that tells its blocks by their tokens announces a change: runs of blocks that came, then those that went. */
export function poolEventsOf({ added, removed }: StoreChange, prompt: PutPrompt): WireEvent[] {
  const events: WireEvent[] = runsOf(added).map(([from, to]) => storedEvent(prompt, from, to));
  if (removed.length > 0) events.push({ type: "removed", hashes: removed.map(hashOfName), medium });
  return events;
}

function storedEvent({ names, prompt, blockSize, adapter, cacheSalt }: PutPrompt, from: number, to: number): WireEvent {
  return {
    type: "stored",
    hashes: names.slice(from, to).map(hashOfName),
    parentHash: from === 0 ? undefined : hashOfName(names[from - 1] as string),
    tokens: prompt.slice(from * blockSize, to * blockSize),
    blockSize,
    adapter,
    cacheSalt,
    medium,
  };
}

/** Places that follow one another, as ranges with an exclusive end. */
function runsOf(places: readonly number[]): [number, number][] {
  const runs: [number, number][] = [];
  for (const place of places) {
    const last = runs.at(-1);
    if (last?.[1] === place) last[1] = place + 1;
    else runs.push([place, place + 1]);
  }
  return runs;
}

/** The first 64 bits of what is written in the name. */
function hashOfName(name: string): bigint {
  return Buffer.from(name, "base64url").readBigUInt64BE();
}
