import { composePolicy } from "../compose-policy.ts";
import { createScratch, type Decision, type Picker, type Scorer } from "../decision.ts";
import { amount, foreignRequestTokens, type PolicyDefinition, tierCreditOptions, tierCredits } from "../definition.ts";
import { type TierCredits, writeCredits } from "../match.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { createQueuedPrefill } from "../scorers/prefill-work.ts";
import { countingWeight, weightedOnly, weightOf } from "../weights.ts";

/** Rounding makes sums of equal blocks differ by less than this. */
const roundingErrorBlocks = 1e-6;

/**
 * The rule of ai-dynamo/dynamo, with its defaults. Paths are below lib/kv-router/src. The cost is that of
 * `scheduling/selector/default.rs` (`worker_logit`, at 07a6c9ce). The decode blocks are the active and additional ones
 * of `sequences/prompt_registry.rs` (`project_worker_loads`, at 312d3427); `sequences/block_tracker.rs` (at 057096c3)
 * counts each of them once, from dispatch to the end of the last request that has it. Defaults are those of
 * `scheduling/config.rs` (at 0243c51b): it tracks prompt blocks only (`router_track_output_blocks: false`), and gives
 * no weight to requests in flight and decaying credits.
 */
export const dynamo: PolicyDefinition = {
  summary:
    "Fewest blocks in prefill and decode per weight. Prefill: waiting prompts and the request, less cache " +
    "credits. Decode: distinct prompt blocks of the requests in flight, plus the request's new ones. Ties are " +
    "random by weight; with a temperature, engines are sampled by cost. Blocks are distinct per router: a block " +
    "shared by requests of several routers counts once for each.",
  source: "the cost function of NVIDIA Dynamo's KV router: overlap credits per tier, prefill load scale, temperature",
  readsPrefixes: true,
  readsActiveBlocks: true,
  options: [
    amount({
      name: "prefill-load-scale",
      default: 1,
      meaning: "Cost of a block of prefill, relative to one of decode.",
    }),
    amount({
      name: "temperature",
      default: 0,
      meaning:
        "Sampling temperature. 0 takes the lowest cost. Above 0, the engine of the highest cost is exp(1 / " +
        "temperature) times less likely than the one of the lowest.",
    }),
    {
      name: "block-size",
      default: 16,
      range: "a whole number from 1 to 65536",
      accepts: (value) => Number.isInteger(value) && value >= 1 && value <= 65_536,
      meaning: "Tokens per block.",
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

/**
 * Draws a candidate with a probability that falls exponentially with its cost, as NVIDIA Dynamo's router does. Costs
 * are scaled by the distance between the lowest and the highest, so that a temperature means the same for costs of any
 * size: the costliest is exp(1 / temperature) times less likely than the cheapest. Weights multiply the probabilities.
 *
 * @param temperature above 0; near 0 the lowest cost is taken, far above it only weights count
 */
function createSoftmaxPicker(temperature: number): Picker {
  const scratch = createScratch();

  /** Writes unnormalized probabilities. @returns their sum */
  const judge = (decision: Decision, out: Float64Array): number => {
    const { candidates, costs, eligible, eligibleCount } = decision;
    let lowest = Number.POSITIVE_INFINITY;
    let highest = Number.NEGATIVE_INFINITY;
    for (let place = 0; place < eligibleCount; place++) {
      const cost = costs[eligible[place]!]!;
      if (cost < lowest) lowest = cost;
      if (cost > highest && cost < Number.POSITIVE_INFINITY) highest = cost;
    }
    const scale = highest > lowest ? 1 / ((highest - lowest) * temperature) : 0;
    let sum = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const cost = costs[index]!;
      // A candidate without a known cost is taken only if no cost is known.
      const isLastResort = cost === Number.POSITIVE_INFINITY && lowest < cost;
      const merit = isLastResort ? 0 : cost === lowest ? 1 : Math.exp((lowest - cost) * scale);
      out[index] = merit * weightOf(candidates, index);
      sum += out[index]!;
    }
    return sum;
  };

  return {
    pick(decision, random, choice) {
      const shares = scratch.of(decision);
      let left = random.float() * judge(decision, shares);
      const { eligible, eligibleCount } = decision;
      // Rounding may leave a remainder after the last subtraction: then take the last candidate that can be drawn.
      for (let place = 0; place < eligibleCount && left >= 0; place++) {
        const index = eligible[place]!;
        if (!(shares[index]! > 0)) continue;
        choice.index = index;
        left -= shares[index]!;
      }
      choice.reason = "softmax";
    },
    explain(decision, out) {
      const sum = judge(decision, out);
      const { eligible, eligibleCount } = decision;
      for (const index of eligible.subarray(0, eligibleCount)) out[index] = out[index]! / sum;
      return { reason: "softmax" };
    },
  };
}

interface PrefillBlocksOptions {
  /** Tokens per block. */
  readonly blockTokens: number;
  readonly credits: TierCredits;
  /** Assumed size of a queued request of another client, in tokens. */
  readonly foreignRequestTokens: number;
}

/**
 * Prefill blocks including this request, per unit of weight: the queued ones and the whole prompt, minus the blocks
 * credited to the candidate's caches, at least 0.
 */
function createPrefillBlocks({ blockTokens, credits, foreignRequestTokens }: PrefillBlocksOptions): Scorer {
  const queued = createQueuedPrefill(foreignRequestTokens);
  const credit = createCreditBlocks(blockTokens, credits);
  const scratch = createScratch();
  return {
    name: "prefill_blocks",
    parts: [...(queued.parts ?? []), credit],
    score(decision, out) {
      const { request, candidates, eligible, eligibleCount } = decision;
      const credited = scratch.of(decision);
      queued.score(decision, out);
      credit.score(decision, credited);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const prompt = request.promptTokens / countingWeight(candidates.weight[index]!);
        out[index] = Math.max(0, (out[index]! + prompt) / blockTokens - credited[index]!);
      }
    },
  };
}

/**
 * Prompt blocks that the candidate need not compute, per unit of weight. Blocks in slower tiers count at their credit.
 */
function createCreditBlocks(blockTokens: number, credits: TierCredits): Scorer {
  return {
    name: "credit_blocks",
    score(decision, out) {
      writeCredits(decision, credits, out);
      const { candidates, eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = out[index]! / blockTokens / countingWeight(candidates.weight[index]!);
      }
    },
  };
}

/**
 * Distinct prompt blocks of the requests in flight if this request went there, per unit of weight. Without an account
 * of blocks, all full blocks of the prompt count as new.
 *
 * @param blockTokens tokens per block
 */
function createDecodeBlocks(blockTokens: number): Scorer {
  return {
    name: "decode_blocks",
    score({ request, candidates, eligible, eligibleCount }, out) {
      const { weight, activeTokens, newActiveTokens } = candidates;
      const promptBlocks = Math.floor(request.promptTokens / blockTokens);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const added = newActiveTokens[index]!;
        const newBlocks = Number.isNaN(added) ? promptBlocks : added / blockTokens;
        out[index] = (activeTokens[index]! / blockTokens + newBlocks) / countingWeight(weight[index]!);
      }
    },
  };
}
