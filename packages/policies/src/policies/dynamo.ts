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

/**
 * The rule of ai-dynamo/dynamo, with its defaults. Below lib/kv-router/src: the cost is that of
 * `scheduling/selector/default.rs` (`worker_logit`, at 07a6c9ce); the blocks of decode are the active and the additional ones
 * of `sequences/prompt_registry.rs` (`project_worker_loads`, at 312d3427), of which `sequences/block_tracker.rs` (at 057096c3)
 * counts each once, from dispatch to the end of the last request that has it; defaults are those of `scheduling/config.rs` (at
 * 0243c51b): prompt blocks alone are tracked (`router_track_output_blocks: false`), and requests in flight and decaying
 * credits weigh nothing.
 */
export const dynamo: PolicyDefinition = {
  summary:
    "The engine with the fewest blocks in prefill and decode, for its weight. Prefill: prompts that wait there and the one in " +
    "hand, less what its caches are credited with. Decode: prompt blocks of all requests in flight there, each counted once, " +
    "and those of the prompt in hand that would be new among them. Equals at random by weight; with a temperature all are " +
    "drawn, the likelier the fewer blocks. Each router counts blocks once among its own requests; those of other routers are " +
    "added as they say, so that a block that requests of several routers have counts once for each.",
  source: "the cost function of NVIDIA Dynamo's KV router: overlap credits per tier, prefill load scale, temperature",
  readsPrefixes: true,
  readsActiveBlocks: true,
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
      meaning: "Tokens in a block.",
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
