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
  /** What least_connections sustains, by `espalier simulate bursts --knee-of least_connections --load 0.8 --links delays`. */
  kneePerS: 60,
  loads: [0.5],
  /** Of the scenario itself. */
  load: 0.8,
  durationS: 240,
} as const;

const { burst, kneePerS, loads, load, durationS } = burstsParameters;

export const bursts: Scenario = {
  name: "bursts",
  summary: "Requests that come 50 at a time, behind 16 system prompts of 2,000 tokens.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: loads.map((share) => ({ name: `load-${share}`, scale: share / load })),
  published: [],
  admission: true,
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: kneePerS * load * scale,
      burst,
      meanTurns: 1,
      scriptOf: promptScripts(requests, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
