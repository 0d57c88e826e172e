import { composePolicy } from "../compose-policy.ts";
import type { PolicyDefinition } from "../definition.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { createSoftmaxPicker } from "../pickers/softmax.ts";
import { amount, foreignRequestTokens, tierCreditOptions, tierCredits } from "../policy-options.ts";
import { createDecodeBlocks } from "../scorers/decode-blocks.ts";
import { createPrefillBlocks } from "../scorers/prefill-blocks.ts";
import { weightedOnly } from "../weights.ts";

/** Sums of equal blocks differ by less than this, whatever the order in which they were rounded. */
const roundingErrorBlocks = 1e-6;

export const dynamo: PolicyDefinition = {
  summary:
    "The engine with the fewest blocks in prefill and decode, for its weight: prompts that wait there and the one in " +
    "hand, less what its caches are credited with, and the context of requests that are being answered. Equals at " +
    "random by weight; with a temperature all are drawn, the likelier the fewer blocks.",
  source: "the cost function of NVIDIA Dynamo's KV router: overlap credits per tier, prefill load scale, temperature",
  readsPrefixes: true,
  options: [
    amount({
      name: "prefill-load-scale",
      default: 1,
      meaning: "What a block of prefill costs beside one of decode.",
    }),
    amount({
      name: "temperature",
      default: 0,
      meaning:
        "0 takes the lowest cost. Above it engines are drawn: the one of the highest cost is exp(1 / temperature) times " +
        "less likely than the one of the lowest.",
    }),
    {
      name: "block-size",
      default: 16,
      range: "a whole number from 1 to 65536",
      accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 65_536,
      meaning: "Tokens in a block. The context of requests that are being answered is counted in full blocks.",
    },
    foreignRequestTokens,
    ...tierCreditOptions,
  ],
  create: (option) => {
    const blockTokens = option("block-size");
    const prefillBlocks = createPrefillBlocks({
      blockTokens,
      credits: tierCredits(option),
      foreignRequestTokens: option(foreignRequestTokens.name),
    });
    const temperature = option("temperature");
    return composePolicy({
      name: "dynamo",
      filters: [weightedOnly],
      terms: [
        { scorer: prefillBlocks, weight: option("prefill-load-scale") },
        { scorer: createDecodeBlocks(blockTokens), weight: 1 },
      ],
      picker:
        temperature > 0
          ? createSoftmaxPicker(temperature)
          : createNearTiePicker({ reason: "least_cost", tolerance: roundingErrorBlocks }),
    });
  },
};
