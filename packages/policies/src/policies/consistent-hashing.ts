import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { requestLoad } from "../load.ts";
import { createRingPicker } from "../pickers/ring.ts";
import { weightedOnly } from "../weights.ts";

export const consistentHashing: PolicyDefinition = {
  summary:
    "The engine at the session key's place on a hash ring, or the next one that is not above its share of the load; " +
    "without a session key the engine with the fewest requests in flight.",
  source: "vLLM Router session affinity; bounded loads by Mirrokni, Thorup and Zadimoghaddam 2016",
  options: [
    {
      name: "load-factor",
      default: 1.25,
      range: "0, or 1 or more",
      accepts: (value) => value === 0 || (value >= 1 && value < Number.POSITIVE_INFINITY),
      meaning: "How far above its even share of the requests in flight an engine may go; 0 removes the bound.",
    },
    {
      name: "points-per-weight",
      default: 160,
      range: "a whole number from 1 to 4096",
      accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 4_096,
      meaning: "Points on the ring of an engine of weight 1. More points spread the keys more evenly.",
    },
  ],
  create: (option) =>
    composePolicy({
      name: "consistent_hashing",
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createRingPicker({
        loadFactor: option("load-factor"),
        pointsPerWeight: option("points-per-weight"),
      }),
    }),
};
