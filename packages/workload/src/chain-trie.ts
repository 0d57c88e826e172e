/**
 * Chains of block ids that share their beginnings. A node stands for a block and everything before it, so one block id
 * after two different beginnings is two nodes.
 */
export interface ChainTrie {
  /** Nodes made so far, without the root. */
  readonly size: number;
  /** The node of `blockId` after `node`, or undefined. The root is 0. */
  find(node: number, blockId: number): number | undefined;
  /** The same, made if need be. */
  reach(node: number, blockId: number): number;
}

export function createChainTrie(): ChainTrie {
  // One map over all edges takes a fraction of the memory of a map per node.
  const edges = new Map<string, number>();
  return {
    get size() {
      return edges.size;
    },
    find: (node, blockId) => edges.get(`${node}:${blockId}`),
    reach(node, blockId) {
      const edge = `${node}:${blockId}`;
      let next = edges.get(edge);
      if (next === undefined) {
        next = edges.size + 1;
        edges.set(edge, next);
      }
      return next;
    },
  };
}
