import { blockTokens, type SimRequest } from "../clients/workload.ts";

/** Blocks of a prompt that an engine may take from its cache: it always computes the last token. */
export function reusableBlocks({ promptTokens, chain }: Pick<SimRequest, "promptTokens" | "chain">): number {
  return Math.min(Math.floor((promptTokens - 1) / blockTokens), chain.length >>> 1);
}
