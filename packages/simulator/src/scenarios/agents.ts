import { createClosedLoop } from "../clients/loops.ts";
import { type AgentParameters, agentScripts } from "../clients/scripts.ts";
import { limitsOf, type PublishedResult, type Scenario, type ScenarioVariant, scaledClients } from "./scenario.ts";

/**
 * SWE-style trajectories. The source gives medians and bounds. The nearer bound is taken as two standard deviations
 * away, and tool times as uniform.
 */
export const agentParameters = {
  systemTokens: 8_000,
  taskTokens: 1_500,
  steps: { median: 30, sigma: 0.35, least: 10, most: 60 },
  toolTokens: { median: 700, sigma: 0.63, least: 200, most: 4_000 },
  outputTokens: 150,
  toolTimeMs: { least: 1_000, most: 20_000 },
} as const satisfies AgentParameters;

/** Number of trajectories; all begin at once. */
const agents300Clients = 300;

/** The difference is in the baseline, which is slower here: the policy's own mean is nearly the published one. */
const note = "engine, model and KV memory, and how many agents share a client's connections, which stay with an engine";

const compared = (metric: string, policyValue: number, baselineValue: number): PublishedResult => ({
  source: "300 agents, 3 engines",
  metric,
  policy: "epp_weighted",
  policyValue,
  baseline: "clusterip",
  baselineValue,
  ...(metric.startsWith("e2e_") && { note }),
});

export const agents300: Scenario = {
  name: "agents-300",
  summary: "300 agents of 10 to 60 steps behind one system prompt of 8,000 tokens, growing to 35,000 and more.",
  // The preset has enough memory: 300 conversations of 26,000 tokens on average are 5.4 M tokens beyond the system
  // prompt, and three of its engines hold 9.4 M.
  fleet: { preset: "b200-moe", parameters: {}, engines: 3, routers: 1 },
  policies: ["clusterip", "epp_weighted", "least_work", "predicted_latency"],
  variants: [
    { name: "1-engine", engines: 1 },
    { name: "patient", admission: true, maxColdWaitS: 300 },
    { name: "1-engine-patient", engines: 1, admission: true, maxColdWaitS: 300 },
  ],
  published: [
    compared("cached_share", 0.95, 0.62),
    compared("e2e_mean_s", 4.8, 9),
    compared("e2e_p90_s", 9.6, 15.2),
    compared("e2e_p95_s", 17, 70.8),
    // Published only as a factor.
    compared("duration_s", 0.64, 1),
  ],
  isOpenLoop: false,
  createWorkload(options) {
    const clients = scaledClients(agents300Clients, options);
    const scriptOf = agentScripts(agentParameters, options.seed);
    return createClosedLoop({ seed: options.seed, sessions: clients, clients, scriptOf, limits: limitsOf(options) });
  },
};

/** The mix of `agents-300`, with the same load per engine. */
export const scaleOutParameters = {
  clientsPerEngine: agents300Clients / 3,
  engines: [1, 2, 4, 8, 16],
  enginesPerRouter: 4,
} as const;

const { clientsPerEngine, engines, enginesPerRouter } = scaleOutParameters;

const fleetOf = (count: number): ScenarioVariant => ({
  name: `${count}-engines`,
  engines: count,
  routers: Math.ceil(count / enginesPerRouter),
});

export const scaleOut: Scenario = {
  name: "scale-out",
  summary: "The agents of agents-300, 100 for each engine, on 1 to 16 engines.",
  fleet: { preset: "b200-moe", parameters: {}, engines: 4, routers: 1 },
  policies: ["round_robin", "least_work", "predicted_latency"],
  variants: engines.map(fleetOf),
  published: [],
  isOpenLoop: false,
  createWorkload(options) {
    const clients = scaledClients(clientsPerEngine * options.engines, options);
    const scriptOf = agentScripts(agentParameters, options.seed);
    return createClosedLoop({ seed: options.seed, sessions: clients, clients, scriptOf, limits: limitsOf(options) });
  },
};
