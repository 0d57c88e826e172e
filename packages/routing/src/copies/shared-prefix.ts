import { hashString } from "@espalier/policies";
import type { PromptBlocks } from "../prefix/prompt-blocks.ts";

/**
 * Tokens of a prompt that some candidate holds, rounded down to a number of blocks with four leading binary digits: prompts
 * which part soon after the same beginning are known by the same one.
 */
export function sharedTokensOf({ blockCount, blockSize }: PromptBlocks, bestTokens: number): number {
  const held = Math.min(blockCount, Math.floor(bestTokens / blockSize));
  const dropped = Math.max(0, 28 - Math.clz32(held));
  return ((held >>> dropped) << dropped) * blockSize;
}

/** The same for all prompts of a pool that begin so. */
export function rentKeyOf({ chain, blockSize }: PromptBlocks, sharedTokens: number, model = ""): number {
  return (chain[2 * (sharedTokens / blockSize - 1)]! ^ hashString(model, 0)) >>> 0;
}
