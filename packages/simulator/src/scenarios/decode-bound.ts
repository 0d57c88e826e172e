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
  /** What least_connections sustains, by `espalier simulate decode-bound --knee-of least_connections --load 0.8 --links delays`. */
  kneePerS: 30,
  loads: [0.5],
  /** Of the scenario itself. */
  load: 0.8,
  durationS: 240,
} as const;

const { kneePerS, loads, load, durationS } = decodeBoundParameters;

export const decodeBound: Scenario = {
  name: "decode-bound",
  summary: "Prompts of 100 tokens, answers of 1,500 with a long tail.",
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
      meanTurns: 1,
      scriptOf: promptScripts(requests, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
