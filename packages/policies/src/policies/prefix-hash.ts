import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { mixBits } from "../hash.ts";
import { requestLoad } from "../load.ts";
import { createRingPicker } from "../pickers/ring.ts";
import { ringOptions } from "../policy-options.ts";
import { weightedOnly } from "../weights.ts";

/** Makes places on the ring independent of the other uses of the bits of a chain hash. */
const prefixSeed = 0x9e11ad2f;

export const prefixHash: PolicyDefinition = {
  summary:
    "The engine at the place of the prompt's beginning on a hash ring, or the next one that is not above its share " +
    "of the load; for a prompt shorter than a block the engine with the fewest requests in flight.",
  source: "KubeAI's PrefixHash; bounded loads by Mirrokni, Thorup and Zadimoghaddam 2016",
  readsPrefixes: true,
  options: [
    {
      name: "prefix-tokens",
      default: 256,
      range: "a whole number from 1 to 65536",
      accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 65_536,
      meaning:
        "How many tokens at the start of a prompt are hashed, in full blocks: prompts that share them share an engine.",
    },
    ...ringOptions,
  ],
  create: (option) =>
    composePolicy({
      name: "prefix_hash",
      prefixKeyTokens: option("prefix-tokens"),
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createRingPicker({
        loadFactor: option("load-factor"),
        pointsPerWeight: option("points-per-weight"),
        placeOf: ({ prefixKey }) => (prefixKey === undefined ? -1 : mixBits(prefixKey ^ prefixSeed)),
        reasonWithoutKey: "no_prefix_key",
      }),
    }),
};
