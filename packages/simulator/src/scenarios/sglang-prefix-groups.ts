import { shuffled } from "../clients/draws.ts";
import { createClosedLoop } from "../clients/loops.ts";
import { prefixGroupScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, scaledClients } from "./scenario.ts";

/** SGLang v0.4, "Cache-aware load balancer": the benchmark `gsp` (generated shared prefix) on eight workers. */
export const sglangPrefixGroupsParameters = {
  groups: 64,
  promptsPerGroup: 16,
  prefixTokens: 2_048,
  ownTokens: 128,
  outputTokens: 256,
  /** Requests in flight in the source's benchmark. */
  clients: 256,
  /**
   * Prefixes that fit into an engine in addition to its running requests. Round robin then finds 12 of 64
   * prefixes, which is the published 20 %.
   */
  keptPrefixes: 12,
  engines: 8,
} as const;

const { groups, promptsPerGroup, prefixTokens, ownTokens, outputTokens, clients, keptPrefixes, engines } =
  sglangPrefixGroupsParameters;
const runningTokens = (clients / engines) * (ownTokens + outputTokens);

export const sglangPrefixGroups: Scenario = {
  name: "sglang-prefix-groups",
  summary: "64 groups of 16 prompts behind prefixes of 2,048 tokens, all at once; an engine keeps 12 prefixes.",
  fleet: {
    // The source ran an 8B model on A100s; this preset has the nearest prefill and decode times.
    preset: "smg-generic",
    parameters: { blockCount: (keptPrefixes * prefixTokens + runningTokens) / 16 },
    engines,
    routers: 1,
  },
  policies: ["round_robin", "cache_aware", "least_work", "predicted_latency"],
  // The source sent a prompt without a cache hit to the engine with the least cached content.
  variants: [{ name: "v0.4", policyOptions: { "miss-to-free-cache": 1 } }],
  published: [
    {
      source: "SGLang v0.4",
      variant: "v0.4",
      metric: "total_tokens_per_s",
      policy: "cache_aware",
      policyValue: 158_596,
      baseline: "round_robin",
      baselineValue: 82_665,
    },
    {
      source: "SGLang v0.4",
      variant: "v0.4",
      metric: "cached_share",
      policy: "cache_aware",
      policyValue: 0.75,
      baseline: "round_robin",
      baselineValue: 0.2,
    },
  ],
  isOpenLoop: false,
  createWorkload(options) {
    const { seed } = options;
    const sessions = groups * promptsPerGroup;
    const order = shuffled(sessions, seed);
    const groupOf = (request: number): number => order[request]! % groups;
    return createClosedLoop({
      seed,
      sessions,
      clients: scaledClients(clients, options),
      scriptOf: prefixGroupScripts(sglangPrefixGroupsParameters, seed, groupOf),
      limits: limitsOf(options),
    });
  },
};
