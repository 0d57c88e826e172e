import { createClosedLoop } from "../clients/loops.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, scaledClients } from "./scenario.ts";

/** Coding assistants as Baseten runs them behind Dynamo. The source publishes only the hit share. */
const sessions = {
  /** Teams of five, each with its own repository. */
  groups: 12,
  sharedTokens: 30_000,
  sharedShare: 1,
  firstTokens: 600,
  newTokens: 600,
  outputTokens: 300,
  followups: { count: 19 },
  thinkMeanMs: 8_000,
  thinksFirst: true,
} satisfies ChatParameters;

export const baseten4Parameters = { sessions, clients: 60, teamSize: 5 } as const;

export const baseten4: Scenario = {
  name: "baseten-4",
  summary: "60 coding sessions of 20 turns; teams of five share a repository of 30,000 tokens.",
  // The source names no engine. This preset holds what a fourth of the sessions needs (3 repositories of 30k, 15
  // sessions of 9k on average: 225k of 276k tokens) and a third of what all sessions need, so that affinity matters.
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 4, routers: 1 },
  policies: ["round_robin", "dynamo", "least_work", "predicted_latency"],
  variants: [],
  published: [
    {
      // "About twice round robin's."
      source: "Baseten with Dynamo",
      metric: "cached_share",
      policy: "dynamo",
      policyValue: 0.89,
      baseline: "round_robin",
      baselineValue: 0.445,
    },
  ],
  isOpenLoop: false,
  createWorkload(options) {
    const clients = scaledClients(baseten4Parameters.clients, options);
    const scriptOf = chatScripts(sessions, { seed: options.seed, groupSize: baseten4Parameters.teamSize });
    return createClosedLoop({ seed: options.seed, sessions: clients, clients, scriptOf, limits: limitsOf(options) });
  },
};
