/** What routers believe of prompts that no events confirm; the defaults of `prefix.placement-ttl` and `prefix.placement-tokens`. */
export const knowledgeDefaults = { placementTtlMs: 10 * 60_000, placementTokens: 524_288 } as const;
