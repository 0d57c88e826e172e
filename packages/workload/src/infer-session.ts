import { createChainTrie } from "./chain-trie.ts";

/** Blocks at the beginning that say nothing: in the Mooncake conversation trace every request shares the first. */
const commonBlocks = 1;

/**
 * Finds conversations in a trace that has only block ids. A follow-up repeats the whole of an earlier prompt and goes
 * on: a request's session is that of the longest earlier request whose full blocks are the beginning of its own, and
 * more than the one block that all requests share; without such a request it begins a session.
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
