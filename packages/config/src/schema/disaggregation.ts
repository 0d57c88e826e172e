import { Type } from "typebox";
import { section } from "./container.ts";
import { flag, integer } from "./leaf.ts";

const tokens = { minimum: 1, maximum: 10_000_000 };

export const disaggregation = section(
  "When one engine computes a prompt and another one answers; both need `kv-transfer`.",
  {
    "threshold-tokens": Type.Optional(
      integer({
        ...tokens,
        description:
          "Prompts with at least so many tokens that no cache holds are split. Found anew for each request unless given.",
      }),
    ),
    "min-tokens": integer({ ...tokens, description: "Bound below what is found for a request.", default: 2_048 }),
    "max-tokens": integer({ ...tokens, description: "Bound above it.", default: 131_072 }),
    "apply-role-balance": flag({
      description:
        "Keep each engine of role `both` that hands over KV blocks to one side, as many to each as the mix of recent " +
        "requests asks for.",
      default: false,
    }),
  },
);
