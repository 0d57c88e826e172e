import type { TraceRequest } from "./trace-request.ts";

/**
 * The cached share of the input tokens in a cache that never evicts and that all engines share. Counts for each
 * request, in order, the full blocks at its beginning that an earlier request had: at most floor((n - 1) / block size),
 * because an engine always computes the last token of a prompt.
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

/** Blocks at the beginning that do not identify a session: in the Mooncake conversation trace every request shares the first. */
const commonBlocks = 1;

/**
 * Finds conversations in a trace that has only block ids. A follow-up repeats a whole earlier prompt and continues it.
 * So a request belongs to the session of the longest earlier request whose full blocks are the beginning of its own, if
 * these are more than the one block that all requests share. Otherwise it begins a session.
 *
 * @returns a function that takes requests in order (full blocks only) and names the session of each
 */
export function createSessionInference(): (fullBlockIds: readonly number[]) => string {
  const chains = createChainTrie();
  /** Session of the earlier request that ended at a node. */
  const sessionAt = new Map<number, string>();
  let sessions = 0;

  return (fullBlockIds) => {
    let node = 0;
    let session: string | undefined;
    for (const blockId of fullBlockIds) {
      node = chains.reach(node, blockId);
      session = sessionAt.get(node) ?? session;
    }
    session ??= `session-${sessions++}`;
    if (fullBlockIds.length > commonBlocks) sessionAt.set(node, session);
    return session;
  };
}

/**
 * Chains of block ids that share their beginnings. A node represents a block and everything before it, so one block id
 * after two different beginnings is two nodes.
 */
interface ChainTrie {
  /** Number of nodes, without the root. */
  readonly size: number;
  /** The node of `blockId` after `node`, or undefined. The root is 0. */
  find(node: number, blockId: number): number | undefined;
  /** Like `find`, but adds the node if it is missing. */
  reach(node: number, blockId: number): number;
}

function createChainTrie(): ChainTrie {
  // Most nodes have one child, which arrays hold in a fraction of the memory and time of a map. One map over all other
  // edges takes a fraction of a map per node.
  const firstIds: number[] = [];
  const firstNodes: number[] = [];
  const edges = new Map<string, number>();
  let size = 0;
  const find = (node: number, blockId: number): number | undefined =>
    firstIds[node] === blockId ? firstNodes[node] : edges.size === 0 ? undefined : edges.get(`${node}:${blockId}`);
  return {
    get size() {
      return size;
    },
    find,
    reach(node, blockId) {
      const known = find(node, blockId);
      if (known !== undefined) return known;
      size += 1;
      if (firstIds[node] === undefined) {
        firstIds[node] = blockId;
        firstNodes[node] = size;
      } else {
        edges.set(`${node}:${blockId}`, size);
      }
      return size;
    },
  };
}
