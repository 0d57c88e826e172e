import { type BlockHasher, createBlockHasher, createTextHasher, type Hash64 } from "@espalier/core";

/** The hashing that prompts need. Keeps no state between two calls, so one can serve all models of a thread. */
export interface PromptHasher {
  readonly blocks: BlockHasher;
  /** Each user resets it first. */
  readonly text: TextKeyHasher;
}

/** A running hash of a text, to which pieces are added one at a time. It identifies texts within this package. */
interface TextKeyHasher extends Hash64 {
  update(piece: string): void;
  reset(): void;
}

/** Creates the same hashing as in the prefix index, so that digests equal those of engines' events there. */
export const createPromptHasher = (): PromptHasher => ({ blocks: createBlockHasher(), text: createTextKeyHasher() });

const sliceLength = 16_384;

/** Hashes the UTF-16 of a text, which costs a tenth of converting text that is not Latin to UTF-8. */
function createTextKeyHasher(): TextKeyHasher {
  const hasher = createTextHasher();
  const bytes = Buffer.alloc(sliceLength * 2);
  return {
    update(piece) {
      for (let at = 0; at < piece.length; at += sliceLength) {
        const slice = piece.length <= sliceLength ? piece : piece.slice(at, at + sliceLength);
        hasher.update(bytes.subarray(0, bytes.write(slice, 0, "utf16le")));
      }
    },
    reset: () => hasher.reset(),
    get low() {
      return hasher.low;
    },
    get high() {
      return hasher.high;
    },
  };
}

/** A prompt, or the beginning of one, in blocks. Caches share it: its arrays are immutable. */
export interface PromptBlocks {
  readonly tokenCount: number;
  /** Digests of the full blocks, two words each, low word first. */
  readonly contents: Uint32Array;
  /** Tokens after the last full block. */
  readonly leftover: Uint32Array;
}

/** A prompt without tokens. */
export const noBlocks: PromptBlocks = { tokenCount: 0, contents: new Uint32Array(0), leftover: new Uint32Array(0) };

const anyParent: Hash64 = { low: 0, high: 0 };

/** @param options.blockSize tokens per block, the same for all prompts that are appended to each other */
export function createBlockBuilder({
  hasher,
  blockSize,
}: {
  readonly hasher: PromptHasher;
  readonly blockSize: number;
}) {
  return {
    /** Appends `tokens` to `before`. */
    append(before: PromptBlocks, tokens: readonly Uint32Array[]): PromptBlocks {
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
        chain: scratchChain(2 * blocks),
        contents: contents.subarray(before.contents.length),
      });
      return { tokenCount, contents, leftover: open.slice(blocks * blockSize) };
    },
    /** The chain of a prompt's full blocks from a root, two words per block. */
    chain({ contents }: PromptBlocks, root: Hash64): Uint32Array {
      const chain = new Uint32Array(contents.length);
      hasher.blocks.mixContents({ parent: root, contents, blocks: contents.length / 2, chain });
      return chain;
    },
  };
}

/** Concatenates token ids. */
function joined(pieces: readonly Uint32Array[], length: number): Uint32Array {
  const all = new Uint32Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

let words = new Uint32Array(1_024);

/**
 * A scratch array for a chain that is not read: blocks' digests are needed before their chain's root is known. Its
 * contents are valid until the next call.
 */
export function scratchChain(length: number): Uint32Array {
  if (words.length < length) words = new Uint32Array(length);
  return words.subarray(0, length);
}
