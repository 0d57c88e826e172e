import { type BlockTree, nodeFlag } from "./block-tree.ts";
import { nodeField } from "./node-table.ts";

/** Nodes to examine, evenly spread; in trees with more, the numbers of blocks are estimates. */
export const maxSampledNodes = 4_096;
/** Bound of steps towards the root for all of them. */
const maxSteps = 1_000_000;

/** A prefix after which prompts differ. */
export interface SharedPrefix {
  /** Chain hash of its last block. */
  readonly low: number;
  readonly high: number;
  /** Router blocks of the prefix. */
  readonly depthBlocks: number;
  /** Number of different continuations. */
  readonly continuations: number;
  /**
   * Blocks below it, of the engine or of the router, whichever are smaller: exact in small trees, otherwise estimated.
   */
  readonly blocksBelow: number;
}

export interface SharedPrefixOptions {
  readonly nodesPerBlock: number;
  /** Whether a node ends a router block. */
  readonly isReported: (id: number) => boolean;
}

/** The prefixes that save most work by being shared: their depth times the blocks below. */
export function sharedPrefixesOf(tree: BlockTree, options: SharedPrefixOptions, limit: number): SharedPrefix[] {
  const below = sampleBlocksBelow(tree);
  const found = new Map<number, SharedPrefix>();
  for (const [branch, blocksBelow] of below) {
    // A prefix that ends inside a router block is reported by the last whole one.
    let node = branch;
    while (node !== 0 && !options.isReported(node)) node = tree.parentOf(node);
    if (node === 0) continue;
    const known = found.get(node);
    if (known && known.blocksBelow >= blocksBelow) continue;
    const at = node * tree.table.stride + nodeField.chain;
    found.set(node, {
      low: tree.table.words[at]!,
      high: tree.table.words[at + 1]!,
      depthBlocks: depthOf(tree, node) / options.nodesPerBlock,
      continuations: tree.childCount(branch),
      blocksBelow,
    });
  }
  const saving = (prefix: SharedPrefix): number => prefix.depthBlocks * prefix.blocksBelow;
  return [...found.values()].sort((one, other) => saving(other) - saving(one)).slice(0, limit);
}

/** The nodes with several children, and how many nodes are below each. */
function sampleBlocksBelow(tree: BlockTree): Map<number, number> {
  const { words, stride, end } = tree.table;
  const every = Math.ceil(end / maxSampledNodes);
  const below = new Map<number, number>();
  let steps = 0;
  for (let id = 1; id < end && steps < maxSteps; id += every) {
    const link = words[id * stride + nodeField.link]!;
    if (!tree.table.isLive(id) || tree.hasFlag(id, nodeFlag.alias)) continue;
    for (let node = link >>> 8; node !== 0 && steps < maxSteps; node = tree.parentOf(node), steps++) {
      if (tree.childCount(node) > 1) below.set(node, (below.get(node) ?? 0) + every);
    }
  }
  return below;
}

function depthOf(tree: BlockTree, id: number): number {
  let depth = 0;
  for (let node = id; node !== 0; node = tree.parentOf(node)) depth++;
  return depth;
}
