import { createClosedLoop } from "../clients/closed-loop.ts";
import { agentScripts } from "../clients/scripts/agent-script.ts";
import { agentParameters, agents300Clients } from "./agents-300.ts";
import { limitsOf, scaledClients } from "./limits-of.ts";
import type { Scenario, ScenarioVariant } from "./scenario.ts";

/** The mix of `agents-300`, as much of it for each engine as there. */
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
