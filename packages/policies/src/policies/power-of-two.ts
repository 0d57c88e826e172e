import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { requestLoad } from "../load.ts";
import { betterOfTwo } from "../pickers/better-of-two.ts";
import { weightedOnly } from "../weights.ts";

export const powerOfTwo: PolicyDefinition = {
  summary: "Two engines at random, then the one with fewer requests in flight for its weight.",
  source: "Mitzenmacher 2001; SGLang and vLLM routers",
  readsPrefixes: false,
  options: [],
  create: () =>
    composePolicy({
      name: "power_of_two",
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: betterOfTwo,
    }),
};
