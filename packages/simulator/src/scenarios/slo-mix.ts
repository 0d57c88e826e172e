import { ownRandom } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/loops.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/** Interactive chats. */
const interactive = {
  groups: 1,
  sharedTokens: 1_000,
  sharedShare: 1,
  firstTokens: 300,
  newTokens: 150,
  outputTokens: 250,
  followups: { mean: 4 },
  thinkMeanMs: 5_000,
  thinksFirst: false,
} satisfies ChatParameters;

/** Batch jobs of 10,000 tokens. */
const batch = {
  groups: 0,
  sharedTokens: 0,
  sharedShare: 0,
  firstTokens: 10_000,
  newTokens: 0,
  outputTokens: 300,
  followups: { count: 0 },
  thinkMeanMs: 0,
  thinksFirst: false,
} satisfies ChatParameters;

/**
 * Lengths other than the jobs' are chosen for this scenario. The rates are the highest that the fleet sustains. On one
 * of 8 engines a job takes 0.87 s of prefill and 0.1 s of decode, and a chat turn 0.02 s and 0.03 s; steps add a base
 * time.
 */
export const sloMixParameters = {
  interactive,
  batch,
  chatsPerS: 8,
  jobsPerS: 4,
  /** Shares of the knee. */
  loads: [0.7, 0.85, 1, 1.1],
  /** Load at which requests do not queue. */
  unloaded: 0.05,
  durationS: 300,
} as const;

const { chatsPerS, jobsPerS, loads, unloaded, durationS } = sloMixParameters;
const startsPerS = chatsPerS + jobsPerS;
const meanTurns = (chatsPerS * (1 + interactive.followups.mean) + jobsPerS) / startsPerS;

export const sloMix: Scenario = {
  name: "slo-mix",
  summary:
    "Interactive chats together with batch jobs of 10,000 tokens, at 0.7 to 1.1 of what the fleet can do: by class, and " +
    "first come, first served (fifo).",
  fleet: { preset: "h100-70b-tp4", parameters: {}, engines: 8, routers: 2 },
  policies: ["round_robin", "least_connections", "least_work", "predicted_latency"],
  variants: [
    ...loads.map((load) => ({ name: `load-${load}`, scale: load })),
    ...loads.map((load) => ({ name: `fifo-${load}`, scale: load, admission: false })),
    { name: "unloaded", scale: unloaded },
  ],
  admission: true,
  published: [],
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    const chats = chatScripts(interactive, { seed, className: "interactive" });
    const jobs = chatScripts(batch, { seed, className: "batch" });
    return createOpenLoop({
      seed,
      startsPerS: startsPerS * scale,
      meanTurns,
      scriptOf: (session) =>
        ownRandom(~seed, session).float() * startsPerS < chatsPerS ? chats(session) : jobs(session),
      limits: limitsOf(options, durationS),
    });
  },
};
