import type { Cancel, Clock, Logger, Meter, Random, RouterId, Scheduler } from "@espalier/common";
import type { Member, Origin } from "@espalier/replication";
import type { DialFailure, Link, LinkEnd } from "../link/link.ts";
import { MembershipCore } from "./membership-core.ts";
import type { MembershipLimits } from "./membership-limits.ts";

/** Something about a member is different: its state, its life, its link, what it says of itself. */
export interface MembershipChange {
  readonly member: Member;
  /** The state that listeners were told before; undefined for a new member. */
  readonly before: Member["state"] | undefined;
  /** It is not among the members any more. A later life of the same router has a change of its own. */
  readonly isForgotten: boolean;
}

export interface MembershipDeps {
  /** This life of this router. It may rise while the membership runs. */
  readonly self: () => Origin;
  /** Where others can dial this router, `host:port`; undefined when they cannot. */
  readonly address: () => string | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** By how many milliseconds the event loop is late at present. */
  readonly lagMs: () => number;
  /** CPU time that this process has used, in milliseconds. */
  readonly cpuMs: () => number;
  /** Begins to dial an address and keeps at it; at once when it is being dialed already and no link is up. */
  dial(address: string): void;
  /** Dials an address no more; its link stays. */
  forget(address: string): void;
  readonly meter: Meter;
  readonly logger: Logger;
  readonly limits?: Partial<MembershipLimits>;
}

/**
 * Who the other routers are, and which of them are alive.
 *
 * Every router says of itself who it has links to. A member is alive while a path of links leads to it, by the word of
 * the routers along it; a link counts while something is heard on it. A member without a path is suspected, and told
 * so; unless it refutes that under a higher incarnation it is taken for dead. (SWIM by Das, Gupta and Motivala, 2002;
 * judgement stretched by one's own slowness as in Lifeguard by Dadgar, Phillips and Currey, 2017.)
 */
export interface Membership {
  start(): void;
  stop(): void;
  linkUp(link: Link): void;
  linkDown(link: Link, why: LinkEnd): void;
  dialFailed(address: string, why: DialFailure): void;
  /**
   * Takes a payload of channel `membership`.
   *
   * @throws EspalierError `mesh_frame_invalid` for bytes that no member writes; nothing of them is applied
   */
  receive(link: Link, frame: Uint8Array): void;
  /** A frame of any other channel came. */
  heard(link: Link): void;
  /** The other routers, those that are down or have left included until they are forgotten. */
  members(): readonly Member[];
  member(router: RouterId): Member | undefined;
  /** Where a member says that it can be dialed. */
  addressOf(router: RouterId): string | undefined;
  /** Whether a member that says it listens there is alive. */
  isReached(address: string): boolean;
  /** The routers that a router, this one included, has links to by its own word. */
  linksOf(router: RouterId): ReadonlySet<RouterId>;
  onChange(listener: (change: MembershipChange) => void): Cancel;
  setDraining(isDraining: boolean): void;
  setUnreachable(targets: readonly string[]): void;
  /** Says goodbye on every link, at once. `stop` follows. */
  leave(): void;
}

/** Links are told to it by whoever makes them; it sends on their channel `membership` and ends those that are silent. */
export function createMembership(deps: MembershipDeps): Membership {
  return new MembershipCore(deps);
}
