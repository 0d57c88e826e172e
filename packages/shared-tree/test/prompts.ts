import { chainRoot, createBlockHasher } from "@espalier/core";
import type { PlacedPrompt } from "../src/shared-tier.ts";

const blockSize = 16;
const hasher = createBlockHasher();

/** Tokens that differ from those of any other letter, and go on the same way whatever their number. */
export const tokensOf = (letter: string, count: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, at) => letter.charCodeAt(0) * 100_000 + at);

/** A prompt of these tokens, cut into blocks of 16. */
export function promptOf(tokens: Uint32Array): PlacedPrompt {
  const words = 2 * Math.floor(tokens.length / blockSize);
  const chain = new Uint32Array(words);
  const contents = new Uint32Array(words);
  const parent = chainRoot({ seed: "test", adapter: undefined, cacheSalt: undefined, blockSize, unit: "tokens" });
  const blockCount = hasher.hashTokens({ tokens, blockSize, parent, chain, contents });
  return { chain, blockCount };
}
