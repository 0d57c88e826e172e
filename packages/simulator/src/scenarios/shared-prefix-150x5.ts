import { shuffled } from "../clients/draws.ts";
import { createStagedLoad, type LoadStage } from "../clients/loops.ts";
import { limitsOf, type Scenario, scaledClients } from "./scenario.ts";

const stage = (ratePerS: number, durationS: number): LoadStage => ({ ratePerS, durationS });

/**
 * llm-d's benchmark of precise prefix-cache-aware routing (inference-perf, data `shared_prefix`, 2025). Its report, with the
 * configuration of the schedulers and figures of each stage: llm-d/llm-d-kv-cache, benchmarking/73-capacity/README.md.
 */
export const sharedPrefixParameters = {
  groups: 150,
  promptsPerGroup: 5,
  prefixTokens: 6_000,
  /** The same question each time a user returns: the source creates its 750 prompts once and cycles through them. */
  questionTokens: 1_200,
  outputTokens: 1_000,
  /** 307,328 per engine: the prefixes and questions of all users are 1.8 M tokens, 73 % of eight engines. */
  kvTokens: 307_328,
  /**
   * The source does not say it, but every stage of the report has about as many requests in flight, by Little's law. At
   * 60 a second to random engines, 121 are being answered (4,835 tokens/s, 25 ms each) and 278 wait (4.8/s, for 57.4
   * s). inference-perf allows 100 in each of its processes.
   */
  clients: 400,
  /** One round of all users first, then from 3 to 60 requests a second. */
  stages: [
    stage(15, 50),
    stage(3, 20),
    stage(10, 20),
    stage(15, 20),
    stage(20, 38),
    stage(22, 34),
    stage(25, 30),
    stage(30, 25),
    stage(35, 21),
    stage(40, 38),
    stage(43, 36),
    stage(46, 33),
    stage(49, 30),
    stage(52, 29),
    stage(55, 27),
    stage(57, 26),
    stage(60, 25),
  ],
} as const;

const { groups, promptsPerGroup, prefixTokens, questionTokens, outputTokens, kvTokens, clients, stages } =
  sharedPrefixParameters;
const users = groups * promptsPerGroup;
const source = "llm-d";
/** By the report's table of stages: 0.29 s to the first token at 3 requests a second, when nothing waits. */
const note =
  "what gateway, tokenizer and client take (0.29 s at 3 requests/s), and the engine's own limits: there some 15 requests " +
  "run in a random engine and the others wait, here 50 run";

export const sharedPrefix150x5: Scenario = {
  name: "shared-prefix-150x5",
  summary:
    "150 customers with 5 users each, prompts of 6,000 shared and 1,200 own tokens, 3 to 60 requests/s in steps.",
  // The source ran Qwen3-32B on pairs of H100.
  fleet: { preset: "h100-32b-tp2", parameters: { blockCount: kvTokens / 16 }, engines: 8, routers: 1 },
  policies: ["random", "epp_weighted", "least_work", "predicted_latency"],
  variants: [
    {
      // The router knows only its own placements, of the first 256 blocks of 64 characters of a prompt, and all weights
      // are 1.
      name: "approximate",
      policyOptions: {
        "queue-weight": 1,
        "kv-cache-utilization-weight": 1,
        "prefix-cache-weight": 1,
        "max-prefix-tokens": 4_096,
      },
    },
  ],
  published: [
    {
      source,
      metric: "output_tokens_per_s",
      policy: "epp_weighted",
      policyValue: 8_730,
      baseline: "random",
      baselineValue: 4_429,
    },
    {
      source,
      metric: "ttft_p90_s",
      policy: "epp_weighted",
      policyValue: 0.54,
      baseline: "random",
      baselineValue: 93,
      note,
    },
    {
      source,
      variant: "approximate",
      metric: "output_tokens_per_s",
      policy: "epp_weighted",
      policyValue: 6_944,
      sharing: "none",
      baseline: "random",
      baselineValue: 4_429,
    },
    {
      source,
      variant: "approximate",
      metric: "ttft_p90_s",
      policy: "epp_weighted",
      policyValue: 31,
      sharing: "none",
      baseline: "random",
      baselineValue: 93,
      note,
    },
  ],
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    const order = shuffled(users, seed);
    return createStagedLoad({
      seed,
      stages: stages.map(({ ratePerS, durationS }) => ({ ratePerS: ratePerS * scale, durationS })),
      maxInFlight: scaledClients(clients, options),
      limits: limitsOf(options),
      visitOf(index) {
        const user = order[index % users]!;
        return {
          session: user,
          turn: Math.floor(index / users),
          script: {
            expectedTokens: prefixTokens + questionTokens + outputTokens,
            write(_, conversation) {
              conversation.share(Math.floor(user / promptsPerGroup), prefixTokens);
              conversation.share(groups + user, questionTokens);
              return outputTokens;
            },
          },
        };
      },
    });
  },
};
