import { createOpenLoop } from "../clients/open-loop.ts";
import { type ToolClusterParameters, toolClusterScripts } from "../clients/scripts/tool-cluster-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** Blocks of the trace that this stands for. */
const traceBlockTokens = 512;

/**
 * Stands for the tool and agent trace of Mooncake (23,608 requests of 8,600 tokens in an hour). Clusters and rate are
 * its own. The rest is chosen so that prompts have its mean length, and a cache without end would hold 0.59 of them:
 * Dynamo's 0.45 to 0.50 are 76 to 84 % of that.
 */
const agents = {
  clusters: [
    { share: 0.46, tokens: 1 * traceBlockTokens },
    { share: 0.39, tokens: 12 * traceBlockTokens },
    { share: 0.15, tokens: 5 * traceBlockTokens },
  ],
  firstTokens: { median: 3_200, sigma: 0.9, least: 100, most: 60_000 },
  newTokens: { median: 900, sigma: 0.9, least: 50, most: 20_000 },
  outputTokens: { median: 30, sigma: 1.2, least: 1, most: 1_000 },
  meanFollowups: 0.6,
  pauseMeanMs: 5_000,
} satisfies ToolClusterParameters;

export const toolagentParameters = { agents, requestsPerS: 6.67, durationS: 900 } as const;

const meanTurns = 1 + agents.meanFollowups;

export const toolagent: Scenario = {
  name: "toolagent",
  summary: "Calls of three kinds of agents: prompts that begin alike, answers of a few tokens.",
  fleet: { preset: "b200-moe", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "epp_weighted", "least_work", "predicted_latency"],
  variants: [],
  // What is published is a share of the run's own bound, not a ratio to another policy.
  published: [],
  durationS: toolagentParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: (toolagentParameters.requestsPerS / meanTurns) * scale,
      meanTurns,
      scriptOf: toolClusterScripts(agents, seed),
      limits: limitsOf(options, toolagentParameters.durationS),
    });
  },
};
