/**
 * Times in milliseconds of the router's own running time, and bounds. A router that falls silent is suspected after at
 * most `silentMs` plus two ticks, down `suspectMs` later, and forgotten `forgetMs` after that.
 */
export interface MembershipLimits {
  /** How often time is looked at. */
  readonly tickMs: number;
  /** A link on which nothing was heard for so long is pinged. */
  readonly pingMs: number;
  /** A busy link is pinged this often too: pings measure the round trip and compare the tables. */
  readonly busyPingMs: number;
  /** Others are asked whether they hear a peer that has been silent for so long. */
  readonly probeMs: number;
  /** A link on which nothing was heard for so long is ended. */
  readonly silentMs: number;
  /** A member that no path leads to is down after so long. */
  readonly suspectMs: number;
  /** The same for a member whose process is known to be gone. */
  readonly goneMs: number;
  /** A member that is down or has left is forgotten after so long. */
  readonly forgetMs: number;
  /** The address of a forgotten member is dialed for so long, so that a split mesh whose seeds are dead heals. */
  readonly rejoinMs: number;
  /** A link beyond the overlay is ended at this age. */
  readonly surplusMs: number;
  readonly maxMembers: number;
  /** Up to so many routers, each has a link to each. */
  readonly maxFullMesh: number;
  /** Links that a router seeks in a larger mesh. */
  readonly overlayDegree: number;
  readonly maxRejoinAddresses: number;
}

export const defaultMembershipLimits: MembershipLimits = {
  tickMs: 100,
  pingMs: 500,
  busyPingMs: 1_000,
  probeMs: 900,
  silentMs: 1_750,
  suspectMs: 1_700,
  goneMs: 250,
  forgetMs: 1_700,
  rejoinMs: 600_000,
  surplusMs: 10_000,
  maxMembers: 256,
  maxFullMesh: 16,
  overlayDegree: 8,
  maxRejoinAddresses: 64,
};
