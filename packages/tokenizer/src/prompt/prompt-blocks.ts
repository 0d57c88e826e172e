import type { Hash64 } from "@espalier/prefix-index";
import type { PromptHasher } from "./prompt-hasher.ts";
import { unusedChain } from "./unused-chain.ts";

/** A prompt, or the beginning of one, in blocks. It is shared with caches: nobody changes its arrays. */
export interface PromptBlocks {
  readonly tokenCount: number;
  /** Digests of the full blocks, two words each, the low one first. */
  readonly contents: Uint32Array;
  /** Tokens after the last full block. */
  readonly leftover: Uint32Array;
}

/** A prompt without tokens. */
export const noBlocks: PromptBlocks = { tokenCount: 0, contents: new Uint32Array(0), leftover: new Uint32Array(0) };

const anyParent: Hash64 = { low: 0, high: 0 };

export interface BlockBuilder {
  /** `before` with `tokens` behind it. */
  append(before: PromptBlocks, tokens: readonly Uint32Array[]): PromptBlocks;
  /** The chain of a prompt's full blocks from a root, two words for each block. */
  chain(prompt: PromptBlocks, root: Hash64): Uint32Array;
}

/** @param options.blockSize tokens in a block, the same for all that are appended to each other */
export function createBlockBuilder({
  hasher,
  blockSize,
}: {
  readonly hasher: PromptHasher;
  readonly blockSize: number;
}): BlockBuilder {
  return {
    append(before, tokens) {
      const added = tokens.reduce((sum, piece) => sum + piece.length, 0);
      if (added === 0) return before;
      const open = joined([before.leftover, ...tokens], before.leftover.length + added);
      const blocks = Math.floor(open.length / blockSize);
      const tokenCount = before.tokenCount + added;
      if (blocks === 0) return { tokenCount, contents: before.contents, leftover: open };
      const contents = new Uint32Array(before.contents.length + 2 * blocks);
      contents.set(before.contents);
      hasher.blocks.hashTokens({
        tokens: open,
        blockSize,
        parent: anyParent,
        chain: unusedChain(2 * blocks),
        contents: contents.subarray(before.contents.length),
      });
      return { tokenCount, contents, leftover: open.slice(blocks * blockSize) };
    },
    chain({ contents }, root) {
      const chain = new Uint32Array(contents.length);
      hasher.blocks.mixContents({ parent: root, contents, blocks: contents.length / 2, chain });
      return chain;
    },
  };
}

/** Token ids in a row. */
function joined(pieces: readonly Uint32Array[], length: number): Uint32Array {
  const all = new Uint32Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
