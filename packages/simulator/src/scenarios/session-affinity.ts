import { createClosedLoop } from "../clients/loops.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, scaledClients } from "./scenario.ts";

/**
 * Chats with nothing in common. The source does not say how its factors were measured. llm-d's account of a deployment
 * at Tesla (April 2026) has the same two, for Llama 3.1 70B on four MI300X, read from a dashboard. Lengths, think time
 * and the cached share are this scenario's own. All chats begin at once, as load generators start them.
 */
const chats = {
  groups: 0,
  sharedTokens: 0,
  sharedShare: 0,
  firstTokens: 400,
  newTokens: 150,
  outputTokens: 250,
  followups: { count: 7 },
  thinkMeanMs: 5_000,
  thinksFirst: false,
} satisfies ChatParameters;

export const sessionAffinityParameters = {
  chats,
  clients: 400,
  /** Share of the live chats that fit into one engine when every engine sees all chats. */
  keptShare: 0.5,
} as const;

/** A chat halfway: its first message and answer, and half of the seven turns after it. */
const meanChatTokens = chats.firstTokens + chats.outputTokens + 3.5 * (chats.newTokens + chats.outputTokens);

export const sessionAffinity: Scenario = {
  name: "session-affinity",
  summary: "400 chats of 8 turns with nothing in common; an engine holds half of them.",
  fleet: {
    // The preset with the slowest prefill relative to its decode. A turn takes an engine 0.5 s of prefill and 0.3 s of
    // decode under round robin, 0.1 and 0.3 s with affinity. Output can grow by at most 2.2 times, and by 1.7 times
    // when users think.
    preset: "a10g-7b",
    parameters: {
      blockCount: Math.round(
        (sessionAffinityParameters.keptShare * sessionAffinityParameters.clients * meanChatTokens) / 16,
      ),
    },
    engines: 8,
    routers: 1,
  },
  policies: ["round_robin", "consistent_hashing", "least_work", "predicted_latency"],
  variants: [],
  // Published only as factors.
  published: [
    {
      source: "vLLM Router",
      metric: "output_tokens_per_s",
      policy: "consistent_hashing",
      policyValue: 3,
      baseline: "round_robin",
      baselineValue: 1,
      note:
        "engine, lengths, think time and memory; with these prefill and decode times output cannot become more than 1.7 " +
        "times as much",
    },
    {
      source: "vLLM Router",
      metric: "ttft_mean_s",
      policy: "consistent_hashing",
      policyValue: 0.5,
      baseline: "round_robin",
      baselineValue: 1,
    },
  ],
  isOpenLoop: false,
  createWorkload(options) {
    const clients = scaledClients(sessionAffinityParameters.clients, options);
    const scriptOf = chatScripts(chats, { seed: options.seed });
    return createClosedLoop({ seed: options.seed, sessions: clients, clients, scriptOf, limits: limitsOf(options) });
  },
};
