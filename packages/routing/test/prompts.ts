import { chainRoot, createBlockHasher } from "@espalier/core";
import type { PromptBlocks } from "../src/prefix/prompt-blocks.ts";

export const blockSize = 16;
const hasher = createBlockHasher();

/** Tokens that differ from those of any other letter, and go on the same way whatever their number. */
export const tokensOf = (letter: string, count: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, at) => letter.charCodeAt(0) * 100_000 + at);

export const join = (...parts: readonly Uint32Array[]): Uint32Array =>
  Uint32Array.from(parts.flatMap((part) => [...part]));

export interface PromptOptions {
  readonly from?: PromptBlocks["from"];
  readonly cacheSalt?: string;
}

/** A prompt of these tokens, cut into blocks. */
export function promptOf(tokens: Uint32Array, { from = "tokens", cacheSalt }: PromptOptions = {}): PromptBlocks {
  const words = 2 * Math.floor(tokens.length / blockSize);
  const chain = new Uint32Array(words);
  const contents = new Uint32Array(words);
  const unit = from === "bytes" ? "bytes" : "tokens";
  const parent = chainRoot({ seed: "test", adapter: undefined, cacheSalt, blockSize, unit });
  const blockCount = hasher.hashTokens({ tokens, blockSize, parent, chain, contents });
  return { chain, contents, blockCount, blockSize, tokens: tokens.length, from };
}
