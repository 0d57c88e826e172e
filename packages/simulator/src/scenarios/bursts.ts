import { logNormalOfMean } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/open-loop.ts";
import { type PromptParameters, promptScripts } from "../clients/scripts/prompt-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** A burst is of all system prompts together, as of many users who were waiting for the same thing. */
const requests = {
  prompts: 16,
  sharedTokens: 2_000,
  ownTokens: logNormalOfMean(300, 0.6),
  outputTokens: logNormalOfMean(200, 0.6),
} satisfies PromptParameters;

export const burstsParameters = {
  requests,
  burst: 50,
  /**
   * Seven tenths of what the fleet can do: with 300 at once a request takes an engine 20 ms of prefill, its system prompt
   * cached, and 200 steps of 61 ms that it shares with the others; eight engines do 130 a second.
   */
  ratePerS: 90,
  /** Times the rate. */
  loads: [0.5],
  durationS: 240,
} as const;

const { burst, ratePerS, loads, durationS } = burstsParameters;

export const bursts: Scenario = {
  name: "bursts",
  summary: "Requests that come 50 at a time, behind 16 system prompts of 2,000 tokens.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: loads.map((share) => ({ name: `load-${share}`, scale: share })),
  published: [],
  admission: true,
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: ratePerS * scale,
      burst,
      meanTurns: 1,
      scriptOf: promptScripts(requests, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
