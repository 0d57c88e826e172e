import { type Tier, tierNames } from "../tiers.ts";
import { nodeFlag } from "./block-tree.ts";
import type { HeldBlocks } from "./held-blocks.ts";
import { nodeField } from "./node-table.ts";
import type { SinkRuns } from "./sink-runs.ts";

/** Tells all that is held: blocks tier by tier, parents before children, then the holes of each tier. */
export function tellHeld(held: HeldBlocks, runs: SinkRuns): void {
  for (let tier = 0; tier < tierNames.length; tier++) {
    if (held.presence.blocks[tier]! > 0) tellTier(held, tier, runs);
  }
  if (held.presence.holes > 0) held.presence.tellHoles(runs);
  runs.flush();
}

/**
 * Numbers of nodes say nothing about who is above whom, as they are used again: from each node on it is climbed to the
 * first that was told already, and told on the way back.
 */
function tellTier({ tree, presence, isTold }: HeldBlocks, tier: Tier | number, runs: SinkRuns): void {
  const { words, stride, end } = tree.table;
  const done = new Uint8Array(end);
  done[0] = 1;
  const path: number[] = [];
  for (let id = 1; id < end; id++) {
    if (done[id] === 1 || !tree.table.isLive(id) || tree.hasFlag(id, nodeFlag.alias)) continue;
    for (let node = id; done[node] === 0; node = tree.parentOf(node)) {
      done[node] = 1;
      path.push(node);
    }
    for (let node = path.pop(); node !== undefined; node = path.pop()) {
      if (((presence.tiersOf(node) >>> tier) & 1) === 0 || !isTold(node)) continue;
      runs.add("stored", tier, words, node * stride + nodeField.chain);
    }
  }
}
