/** Bounds and times of what routers tell each other of tenants. Times in milliseconds on the monotonic clock. */
export interface UsageLimits {
  /** Tenants of whom it is remembered what this router has served them; more, and those served longest ago are forgotten. */
  readonly maxTenants: number;
  /** Of those, the ones that others are told of: those with the most tokens. */
  readonly maxTold: number;
  /** Tenants that are kept of one other router; more, and those it told of longest ago are forgotten. */
  readonly maxTenantsOfRouter: number;
  /** Routers whose tenants are kept. */
  readonly maxOrigins: number;
  /** What is served within this time goes out together. */
  readonly gatherMs: number;
  /** Part of what a tenant was served that has to be new before others are told. */
  readonly tellShare: number;
  /** How often those that wait, and some others in turn, are told of anew, for routers that may have missed something. */
  readonly refreshMs: number;
  /** How many those others are. */
  readonly refreshTenants: number;
  /** Which tenants have the most tokens is found out so often. */
  readonly rankMs: number;
  /** A router that was not heard for so long counts for nothing: what it had served is forgotten but for a sixteenth. */
  readonly leaseMs: number;
  /** For so long a tenant is believed to wait, unless it is told anew. */
  readonly waitLeaseMs: number;
  /** Tenants of other routers that have next to nothing any more are forgotten so often. */
  readonly sweepMs: number;
}

export const defaultUsageLimits: UsageLimits = {
  maxTenants: 4_096,
  maxTold: 1_024,
  maxTenantsOfRouter: 2_048,
  maxOrigins: 128,
  gatherMs: 250,
  tellShare: 0.01,
  refreshMs: 1_000,
  refreshTenants: 32,
  rankMs: 5_000,
  leaseMs: 240_000,
  waitLeaseMs: 3_000,
  sweepMs: 30_000,
};
