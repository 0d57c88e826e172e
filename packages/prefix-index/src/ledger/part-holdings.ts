import { tierNames } from "../tiers.ts";
import type { BlockTree } from "./block-tree.ts";
import type { Holdings } from "./holdings.ts";
import { TierCounts } from "./tier-counts.ts";
import type { TierPresence } from "./tier-presence.ts";

export interface PartHoldingsOptions {
  readonly tree: BlockTree;
  readonly presence: TierPresence;
  readonly maxNodes: number;
  /** Nodes that are one block of the engine, two or more. */
  readonly partsPerBlock: number;
}

/**
 * Holdings where several nodes on a path are one block of the engine, which has its name at the last of them. Blocks
 * that begin alike share nodes, so a node before the last is there as long as some block through it is.
 */
export function createPartHoldings({ tree, presence, maxNodes, partsPerBlock }: PartHoldingsOptions): Holdings {
  const counts = tierNames.map(() => new TierCounts(maxNodes));
  return {
    get byteLength() {
      return counts.reduce((total, count) => total + count.byteLength, 0);
    },
    tiersOf: (id) => presence.tiersOf(id),
    enter() {},
    leave() {},
    add(id, tier) {
      const blocks = counts[tier]!;
      const path = [id];
      for (let node = tree.parentOf(id); path.length < partsPerBlock; node = tree.parentOf(node)) path.push(node);
      for (let node = path.pop(); node !== undefined; node = path.pop()) {
        if (node === id || blocks.of(node) === 0) presence.gain(node, tier);
        if (node !== id) blocks.change(node, 1);
      }
    },
    remove(id, tier) {
      const blocks = counts[tier]!;
      presence.lose(id, tier);
      let node = id;
      for (let part = 1; part < partsPerBlock; part++) {
        node = tree.parentOf(node);
        blocks.change(node, -1);
        if (blocks.of(node) === 0) presence.lose(node, tier);
      }
    },
  };
}
