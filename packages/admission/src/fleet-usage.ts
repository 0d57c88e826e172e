/** What other routers have done for a tenant of a class. */
export interface TenantElsewhere {
  /** Tokens that they have served to it lately, half of them forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
  /** The most that one of them has lifted it by, decayed likewise. */
  readonly lift: number;
  /** Whether requests of it wait at one of them. */
  readonly waits: boolean;
}

/** What routers tell each other of tenants. A router alone has `noFleetUsage`. */
export interface FleetUsage {
  /** This router has served so many tokens to a tenant of a class. */
  served(className: string, tenant: string, tokens: number): void;
  /** It has lifted a tenant by so many tokens by now. */
  lifted(className: string, tenant: string, tokens: number): void;
  /** A tenant begins to wait at this router, or waits no more. */
  waits(className: string, tenant: string, isWaiting: boolean): void;
  /** Undefined when nothing is known. */
  elsewhere(className: string, tenant: string): TenantElsewhere | undefined;
  /**
   * Tokens served and lift, over all routers, of the tenant with the least of those that wait at other routers; Infinity
   * when none does.
   */
  neediest(className: string): number;
}

export const noFleetUsage: FleetUsage = {
  served() {},
  lifted() {},
  waits() {},
  elsewhere: () => undefined,
  neediest: () => Number.POSITIVE_INFINITY,
};

/** What one router has served to one tenant. */
export interface TenantUsage {
  readonly className: string;
  readonly tenant: string;
  /** Tokens, of which half are forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
}
