import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createRotationPicker } from "../pickers/rotation.ts";
import { weightedOnly } from "../weights.ts";

export const roundRobin: PolicyDefinition = {
  summary: "Every engine in turn; an engine of weight 2 has two turns, spread evenly.",
  source: "baseline; smooth weighted rotation as in nginx",
  readsPrefixes: false,
  options: [],
  create: () =>
    composePolicy({ name: "round_robin", filters: [weightedOnly], terms: [], picker: createRotationPicker() }),
};
