import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { weightedDraw } from "../pickers/weighted-draw.ts";
import { weightedOnly } from "../weights.ts";

export const random: PolicyDefinition = {
  summary: "Any engine, with a probability in proportion to its weight.",
  source: "baseline",
  readsPrefixes: false,
  options: [],
  create: () => composePolicy({ name: "random", filters: [weightedOnly], terms: [], picker: weightedDraw }),
};
