/** What other routers have done for whom. A router alone has `noFleetUsage`. */
export interface FleetUsage {
  /**
   * Tokens that the other routers have served to a tenant of a class lately, decayed as `TenantUsage.tokens` is: the
   * sum of what their `Admission.usage` tells.
   */
  servedElsewhere(className: string, tenant: string): number;
}

export const noFleetUsage: FleetUsage = { servedElsewhere: () => 0 };

/** What one router has served to one tenant, for others to know. */
export interface TenantUsage {
  readonly className: string;
  readonly tenant: string;
  /** Tokens, of which half are forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
}

/** In which half of the tokens that a tenant was served are forgotten. All routers must have the same. */
export const usageHalfLifeMs = 60_000;
