import { createClosedLoop } from "../clients/closed-loop.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts/chat-script.ts";
import { limitsOf, scaledClients } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** Chats as the vLLM Router's announcement of session affinity has them; every length is given there. */
const chats = {
  groups: 0,
  sharedTokens: 0,
  sharedShare: 0,
  firstTokens: 400,
  newTokens: 150,
  outputTokens: 250,
  followups: { count: 7 },
  thinkMeanMs: 5_000,
  thinksFirst: true,
} satisfies ChatParameters;

export const sessionAffinityParameters = {
  chats,
  clients: 400,
  /** Share of the live chats that one engine holds when every engine sees all of them. */
  heldShare: 0.5,
} as const;

/** A chat halfway: its first message and answer, and half of the seven turns after it. */
const meanChatTokens = chats.firstTokens + chats.outputTokens + 3.5 * (chats.newTokens + chats.outputTokens);

export const sessionAffinity: Scenario = {
  name: "session-affinity",
  summary: "400 chats of 8 turns with nothing in common; an engine holds half of them.",
  fleet: {
    // Round robin has to saturate the engines for the published factor of three: of the presets only this one's
    // prefill is slow enough at this rate of turns.
    preset: "a10g-7b",
    parameters: {
      blockCount: Math.round(
        (sessionAffinityParameters.heldShare * sessionAffinityParameters.clients * meanChatTokens) / 16,
      ),
    },
    engines: 8,
    routers: 1,
  },
  policies: ["round_robin", "consistent_hashing", "least_work"],
  variants: [],
  // Published as factors alone.
  published: [
    {
      source: "vLLM Router",
      metric: "output_tokens_per_s",
      policy: "consistent_hashing",
      policyValue: 3,
      baseline: "round_robin",
      baselineValue: 1,
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
