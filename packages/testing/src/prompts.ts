import { type BlockDigests, chainRoot, createBlockHasher, createHasherDigests } from "@espalier/core";

/** Tokens per block of `promptOf`. */
export const blockSize = 16;
const hasher = createBlockHasher();

const rootOf = (adapter?: string, cacheSalt?: string, unit: "tokens" | "bytes" = "tokens") =>
  chainRoot({ seed: "test", adapter, cacheSalt, blockSize, unit });

/** What a router makes of the blocks that an engine announces of such prompts. */
export const promptDigests: BlockDigests = createHasherDigests({ hasher, root: rootOf });

/** Tokens that differ from those of any other letter, and go on the same way whatever their number. */
export const tokensOf = (letter: string, count: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, at) => letter.charCodeAt(0) * 100_000 + at);

export const joinTokens = (...parts: readonly Uint32Array[]): Uint32Array =>
  Uint32Array.from(parts.flatMap((part) => [...part]));

interface PromptNames {
  readonly from?: "tokens" | "partial" | "bytes";
  readonly adapter?: string;
  readonly cacheSalt?: string;
}

/** A prompt of these tokens, cut into blocks as a router cuts it. */
export function promptOf(tokens: Uint32Array, { from = "tokens", adapter, cacheSalt }: PromptNames = {}) {
  const words = 2 * Math.floor(tokens.length / blockSize);
  const chain = new Uint32Array(words);
  const contents = new Uint32Array(words);
  const parent = rootOf(adapter, cacheSalt, from === "bytes" ? "bytes" : "tokens");
  const blockCount = hasher.hashTokens({ tokens, blockSize, parent, chain, contents });
  return { chain, contents, blockCount, blockSize, tokens: tokens.length, from };
}
