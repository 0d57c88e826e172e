import { createChainTrie } from "./chain-trie.ts";
import type { TraceRequest } from "./trace-request.ts";

/**
 * The share of the input tokens that a cache which never evicts, and which all engines share, would have held: for each
 * request in order the full blocks at its beginning that an earlier one had, at most floor((n - 1) / block size) of
 * them because an engine always computes the last token of a prompt.
 *
 * @returns a share, or undefined when the trace names no blocks
 */
export function infiniteCacheBound(requests: readonly TraceRequest[]): number | undefined {
  const chains = createChainTrie();
  let inputTokens = 0;
  let cachedTokens = 0;
  let named = false;
  for (const { inputTokens: tokens, blockIds, blockTokens } of requests) {
    inputTokens += tokens;
    if (blockIds === undefined) continue;
    named = true;
    const reusable = Math.floor((tokens - 1) / blockTokens);
    const full = Math.floor(tokens / blockTokens);
    let node = 0;
    for (let place = 0; place < full; place++) {
      const known = chains.size;
      node = chains.reach(node, blockIds[place]!);
      if (chains.size === known && place < reusable) cachedTokens += blockTokens;
    }
  }
  return named ? cachedTokens / inputTokens : undefined;
}
