import type { RouterId } from "@espalier/common";
import { hashText } from "./text-hash.ts";

/**
 * The routers that one router seeks links to when there are too many for a full mesh. Each of `degree / 2` hash orders
 * closes all routers into a ring, and a router's neighbours are those before and after it in each ring. So every router
 * has the same graph in mind, both ends of a link want it, the graph is connected for any membership, its diameter is
 * that of a random regular graph (about 3 for 256 routers), and one that joins or leaves moves only the links beside it.
 *
 * @param members may or may not contain `self`
 * @param degree the most neighbours, an even number
 */
export function neighboursOf(self: RouterId, members: Iterable<RouterId>, degree: number): Set<RouterId> {
  const routers = [...new Set([...members, self])];
  const neighbours = new Set<RouterId>();
  if (routers.length <= degree + 1) {
    for (const router of routers) neighbours.add(router);
  } else {
    for (let ring = 1; ring <= degree / 2; ring++) addRingNeighbours(self, routers, ring, neighbours);
  }
  neighbours.delete(self);
  return neighbours;
}

function addRingNeighbours(
  self: RouterId,
  routers: readonly RouterId[],
  ring: number,
  neighbours: Set<RouterId>,
): void {
  const order = routers
    .map((router) => ({ router, place: hashText(router, ring) }))
    .sort((one, other) => one.place - other.place || (one.router < other.router ? -1 : 1));
  const at = order.findIndex(({ router }) => router === self);
  neighbours.add(order[(at + 1) % order.length]!.router);
  neighbours.add(order[(at + order.length - 1) % order.length]!.router);
}
