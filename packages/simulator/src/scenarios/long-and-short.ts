import { logNormalOfMean, ownRandom } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/open-loop.ts";
import { type PromptParameters, promptScripts } from "../clients/scripts/prompt-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

const outputTokens = logNormalOfMean(300, 0.6);

const chats = {
  prompts: 1,
  sharedTokens: 1_000,
  ownTokens: logNormalOfMean(300, 0.6),
  outputTokens,
} satisfies PromptParameters;

/** 19 s of prefill each, with nothing in common. */
const longTokens = 128_000;

const longs = {
  prompts: 1,
  sharedTokens: 0,
  ownTokens: { median: longTokens, sigma: 0, least: longTokens, most: longTokens },
  outputTokens,
} satisfies PromptParameters;

export const longAndShortParameters = {
  chats,
  longs,
  longShare: 0.1,
  /** Of eight engines, 4.7 are busy with the prefill of 0.24 long prompts a second. */
  ratePerS: 2.4,
  /** Times the rate. */
  loads: [0.5, 1.25],
  /** Long prompts are few. */
  durationS: 600,
} as const;

const { longShare, ratePerS, loads, durationS } = longAndShortParameters;

/** Of `predicted_latency`, beside its default: this is where they differ. */
const objectives = ["ttft", "e2e", "throughput"] as const;

export const longAndShort: Scenario = {
  name: "long-and-short",
  summary: "Chats of 1,300 tokens, and for every nine of them a prompt of 128,000.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: [
    ...loads.map((share) => ({ name: `load-${share}`, scale: share })),
    ...objectives.map((objective) => ({ name: objective, policyOptions: { objective } })),
  ],
  published: [],
  admission: true,
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    const chat = promptScripts(chats, seed);
    const long = promptScripts(longs, seed);
    return createOpenLoop({
      seed,
      startsPerS: ratePerS * scale,
      meanTurns: 1,
      scriptOf: (session) => (ownRandom(~seed, session).float() < longShare ? long(session) : chat(session)),
      limits: limitsOf(options, durationS),
    });
  },
};
