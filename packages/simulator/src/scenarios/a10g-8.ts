import { createClosedLoop } from "../clients/loops.ts";
import { prefixGroupScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, scaledClients } from "./scenario.ts";

/**
 * A user's benchmark of llm-d on eight `g5.xlarge`, one A10G each (June 2026). Its baseline is a plain ClusterIP
 * Service, which it calls round robin in effect. Groups are drawn at random because the source does not give their
 * order. In strict rotation, round robin would send each group to the same engine in every round.
 */
export const a10g8Parameters = {
  groups: 64,
  prefixTokens: 2_000,
  ownTokens: 200,
  outputTokens: 256,
  /** 2.3 M output tokens. */
  requests: 9_000,
  clients: 512,
} as const;

const source = "llm-d on EKS";
/** The difference is in the baseline, which is slower here: the policy's own figures are nearly the published ones. */
const note = "in which order prompts of the 64 groups come, which decides what a baseline that knows nothing finds";

export const a10g8: Scenario = {
  name: "a10g-8",
  summary: "9,000 prompts behind 64 prefixes of 2,000 tokens, 512 at a time, on eight small GPUs with 60k KV tokens.",
  // The preset is this GPU and model, including its 60,000 KV tokens.
  fleet: { preset: "a10g-7b", parameters: {}, engines: 8, routers: 1 },
  policies: ["clusterip", "epp_weighted", "least_work", "predicted_latency"],
  variants: [],
  published: [
    {
      source,
      metric: "duration_s",
      policy: "epp_weighted",
      policyValue: 358.7,
      baseline: "clusterip",
      baselineValue: 840.2,
    },
    {
      source,
      metric: "output_tokens_per_s",
      policy: "epp_weighted",
      policyValue: 6_423,
      baseline: "clusterip",
      baselineValue: 2_742,
      note,
    },
    {
      source,
      metric: "ttft_mean_s",
      policy: "epp_weighted",
      policyValue: 0.86,
      baseline: "clusterip",
      baselineValue: 19,
      note,
    },
  ],
  isOpenLoop: false,
  createWorkload(options) {
    return createClosedLoop({
      seed: options.seed,
      sessions: a10g8Parameters.requests,
      clients: scaledClients(a10g8Parameters.clients, options),
      scriptOf: prefixGroupScripts(a10g8Parameters, options.seed),
      limits: limitsOf(options),
    });
  },
};
