import { createHash } from "node:crypto";

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
export interface PromptContent {
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
