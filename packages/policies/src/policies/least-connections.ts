import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { requestLoad } from "../load.ts";
import { createLeastCostPicker } from "../pickers/least-cost.ts";
import { weightedOnly } from "../weights.ts";

export const leastConnections: PolicyDefinition = {
  summary: "The engine with the fewest requests in flight for its weight; equals at random.",
  source: "baseline",
  readsPrefixes: false,
  options: [],
  create: () =>
    composePolicy({
      name: "least_connections",
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createLeastCostPicker(),
    }),
};
