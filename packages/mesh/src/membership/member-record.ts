import type { Origin } from "@espalier/replication";

/**
 * What a router says of itself. Only that router writes it, under a higher incarnation each time; others pass it on
 * unchanged (Das, Gupta and Motivala, "SWIM", 2002, where incarnations serve to refute suspicions alone).
 */
export interface MemberRecord {
  readonly origin: Origin;
  readonly incarnation: number;
  /** It has said goodbye. */
  readonly hasLeft: boolean;
  readonly isDraining: boolean;
  /** `host:port` where it can be dialed; empty when it cannot. */
  readonly address: string;
  /** Targets whose event sockets it cannot reach. */
  readonly unreachable: readonly string[];
  /** Ids of the routers it has a link to. */
  readonly links: readonly string[];
}

/** What a router says of another one that no path leads to, for that one to refute. */
export interface MemberClaim {
  readonly origin: Origin;
  /** The latest incarnation that whoever says it knew. */
  readonly incarnation: number;
  readonly state: "suspect" | "down";
}

/** Whether a record or claim of one router is of a later life or incarnation than another. */
export function isLater(
  one: { readonly origin: Origin; readonly incarnation: number },
  other: { readonly origin: Origin; readonly incarnation: number },
): boolean {
  if (one.origin.epoch !== other.origin.epoch) return one.origin.epoch > other.origin.epoch;
  return one.incarnation > other.incarnation;
}

/**
 * A router counts by one for each thing that it says of itself, and every other one hears of that within moments. What is
 * further ahead of what is known is no word of it: to answer it, it would have to count up to a bound that ends its words.
 */
const maxAhead = 65_536;

/** Whether a router that is known to have counted this far may have said, or be said to have said, something under another number. */
export function isWithinReach(knownIncarnation: number, incarnation: number): boolean {
  return incarnation <= knownIncarnation + maxAhead;
}

/** What is known of a router that has said nothing of itself yet. It is not passed on. */
export function unheardRecord(origin: Origin, address: string): MemberRecord {
  return { origin, incarnation: 0, hasLeft: false, isDraining: false, address, unreachable: [], links: [] };
}
