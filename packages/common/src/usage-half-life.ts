/** In which half of the tokens that a tenant was served are forgotten. All routers of a fleet have the same. */
export const usageHalfLifeMs = 60_000;
