import { logNormalOfMean } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/open-loop.ts";
import { type PromptParameters, promptScripts } from "../clients/scripts/prompt-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** Nothing is shared, so that there is nothing but load to go by. */
const requests = {
  prompts: 1,
  sharedTokens: 0,
  ownTokens: logNormalOfMean(100, 0.6),
  outputTokens: logNormalOfMean(1_500, 0.6),
} satisfies PromptParameters;

export const decodeBoundParameters = {
  requests,
  /**
   * Four fifths of what the fleet can do: an engine holds 300 such answers at 850 tokens and more on average, whose steps
   * take 37 ms; eight times 300 / (1,500 x 37 ms) are 43 a second.
   */
  ratePerS: 34,
  /** Times the rate. */
  loads: [0.5],
  durationS: 240,
} as const;

const { ratePerS, loads, durationS } = decodeBoundParameters;

export const decodeBound: Scenario = {
  name: "decode-bound",
  summary: "Prompts of 100 tokens, answers of 1,500 with a long tail.",
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
      meanTurns: 1,
      scriptOf: promptScripts(requests, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
