import type { SimRequest } from "../clients/workload.ts";
import { blockMoveOf, type SimEngine } from "../fleet/sim-engine.ts";
import type { CreateRival, Rival, RivalParts } from "./rival.ts";
import { createSeats, matchedTokens, nameOf, type Seat, sendToSeat } from "./seats.ts";

/**
 * "Towards Distributed Inference of LLMs on a P2P Network" (arXiv 2606.17059), by its abstract: each node keeps an exact tree of
 * what its own engine caches, and estimates of its peers' from their snapshots. A request goes to the node with the longest
 * prefix, and nobody looks at load. How often snapshots are sent is assumed.
 */
const snapshotMs = 1_000;

interface Node {
  readonly seat: Seat;
  /** Blocks that its engine has now. */
  readonly own: Set<number>;
  /** By the other node's number: what it had when it sent its last snapshot. */
  readonly estimates: Map<number, ReadonlySet<number>>;
}

function mirror(engine: SimEngine): Set<number> {
  const blocks = new Set<number>();
  engine.onMessage(({ changes: { runs, kinds, ends, words } }) => {
    for (let run = 0, at = 0; run < runs; run++) {
      const move = blockMoveOf(kinds[run]!);
      if (!move) blocks.clear();
      for (; at < ends[run]!; at++) {
        if (move?.isStored) blocks.add(nameOf(words, at));
        else if (move) blocks.delete(nameOf(words, at));
      }
    }
  });
  return blocks;
}

function createPeers(parts: RivalParts, isRouted: boolean): Rival {
  const { scheduler, placement } = parts;
  const nodes = createSeats(parts).map((seat): Node => ({ seat, own: mirror(seat.engine), estimates: new Map() }));
  if (isRouted) {
    scheduler.every(snapshotMs, () => {
      for (const [from, { own, seat }] of nodes.entries()) {
        const snapshot = new Set(own);
        for (const peer of nodes) {
          if (peer.seat === seat) continue;
          scheduler.after(placement.delayMs(seat.region, peer.seat.region), () => peer.estimates.set(from, snapshot));
        }
      }
    });
  }
  /** The node itself where no other has more. */
  const nodeFor = (request: SimRequest, node: Node): { readonly target: Node; readonly tokens: number } => {
    let target = node;
    let tokens = matchedTokens(request, node.own);
    for (const [number, estimate] of node.estimates) {
      const matched = matchedTokens(request, estimate);
      if (matched <= tokens) continue;
      target = nodes[number]!;
      tokens = matched;
    }
    return { target, tokens };
  };
  return {
    handle(request, region, ended) {
      const node = nodes.find(({ seat }) => seat.region === region)!;
      scheduler.after(placement.clientDelayMs(region, region), () => {
        const { target, tokens } = nodeFor(request, node);
        sendToSeat(parts, request, { seat: target.seat, path: [region, region], predictedTokens: tokens }, ended);
      });
    },
  };
}

export const peerRivals: Readonly<Record<string, CreateRival>> = {
  p2p_anti_entropy: (parts) => createPeers(parts, true),
  p2p_local: (parts) => createPeers(parts, false),
};
