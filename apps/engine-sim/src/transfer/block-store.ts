import { createHash } from "node:crypto";
import type { WireEvent } from "@espalier/engine-model/kv-events";

/** The blocks of a store outside the engines. It keeps only names: a name is a hash of the content. */
export type BlockStore = ReturnType<typeof createBlockStore>;

/** The effect of a put. */
export interface StoreChange {
  /** Positions of the new blocks. */
  readonly added: readonly number[];
  /** Names of the blocks evicted for them. */
  readonly removed: readonly string[];
}

/** Largest number of blocks in a store. */
export const maxStoredBlocks = 262_144;

/** @param capacity blocks kept; the least recently used is evicted */
export function createBlockStore(capacity: number) {
  /** By name: the key under which the engine that stored the block has it, as in a Mooncake Store. */
  const stored = new Map<string, string>();
  const touch = (block: string, key = stored.get(block) ?? ""): void => {
    stored.delete(block);
    stored.set(block, key);
  };
  return {
    /**
     * @param blocks of one prompt, in their order
     * @param keys of these blocks, if they have any
     */
    put(blocks: readonly string[], keys: readonly string[] = []): StoreChange {
      const added = Array.from(blocks.keys()).filter((place) => !stored.has(blocks[place] as string));
      for (const [place, block] of blocks.entries()) touch(block, stored.get(block) ?? keys[place]);
      const removed: string[] = [];
      for (const oldest of stored.keys()) {
        if (stored.size <= capacity) break;
        stored.delete(oldest);
        removed.push(oldest);
      }
      return { added, removed };
    },
    /** The number of leading blocks that are stored. */
    countFirst(blocks: readonly string[]): number {
      let count = 0;
      while (count < blocks.length && stored.has(blocks[count] as string)) touch(blocks[count++] as string);
      return count;
    },
    size: (): number => stored.size,
    keys: (): string[] => [...stored.values()].filter((key) => key !== ""),
    clear: (): void => stored.clear(),
  };
}

/** The content that determines the names of a prompt's blocks. */
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

/** A prompt whose blocks are put into a store. */
export interface PutPrompt extends PromptContent {
  readonly names: readonly string[];
  readonly keys?: readonly string[];
  readonly blockSize: number;
}

/** The medium of memory outside the engines. */
const medium = "EXTERNAL";

/** KV events of a change of the pool: runs of stored blocks with their tokens, then removed blocks. */
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

/** Runs of consecutive positions, with an exclusive end. */
function runsOf(places: readonly number[]): [number, number][] {
  const runs: [number, number][] = [];
  for (const place of places) {
    const last = runs.at(-1);
    if (last?.[1] === place) last[1] = place + 1;
    else runs.push([place, place + 1]);
  }
  return runs;
}

/** The first 64 bits of the name. */
function hashOfName(name: string): bigint {
  return Buffer.from(name, "base64url").readBigUInt64BE();
}
