import type { TierPresence } from "./tier-presence.ts";

/** What an engine holds, node by node, and how that shows in the router's blocks. */
export interface Holdings {
  readonly byteLength: number;
  /** The tiers in which the engine has a node, a bit each. */
  tiersOf(id: number): number;
  /** A node came into the tree, without tiers. */
  enter(id: number, parent: number): void;
  /** A node without tiers and children is about to leave the tree. */
  leave(id: number): void;
  /** The engine has a node in a tier in which it had it not. */
  add(id: number, tier: number): void;
  /** The engine has a node no more in a tier in which it had it. */
  remove(id: number, tier: number): void;
}

/** Holdings where the engine's blocks are the router's. */
export function createWholeHoldings(presence: TierPresence): Holdings {
  return {
    byteLength: 0,
    tiersOf: (id) => presence.tiersOf(id),
    enter() {},
    leave() {},
    add: (id, tier) => presence.gain(id, tier),
    remove: (id, tier) => presence.lose(id, tier),
  };
}
