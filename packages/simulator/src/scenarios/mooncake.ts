import { EspalierError } from "@espalier/core";
import { createOpenLoop } from "../clients/loops.ts";
import { type ToolClusterParameters, toolClusterScripts } from "../clients/scripts.ts";
import { createTraceReplay } from "../clients/traces.ts";
import { mooncakeStepMs } from "../workload/index.ts";
import { limitsOf, type PublishedResult, type Scenario, type ScenarioVariant } from "./scenario.ts";

/** The fleets of Dynamo 1.6.1's own offline replay of the file, and twice its speed. */
export const mooncakeParameters = {
  engines: [8, 4],
  /** KV tokens per engine, in thousands, by variant name; the preset has the first. */
  kvKilotokens: { "3.15M": 3_150, "1.05M": 1_050 },
  speeds: [1, 2],
} as const;

const blocksOf = (kilotokens: number): number => (kilotokens * 1_000) / 16;

const sizes: readonly ScenarioVariant[] = mooncakeParameters.engines.flatMap((engines) =>
  Object.entries(mooncakeParameters.kvKilotokens).flatMap(([kv, kilotokens]) =>
    mooncakeParameters.speeds.map((speed) => ({
      name: `${engines}x${kv}${speed === 1 ? "" : `-x${speed}`}`,
      engines,
      scale: speed,
      parameters: { blockCount: blocksOf(kilotokens) },
    })),
  ),
);

/** The best settings that the source found for its router: a block of prefill costs as much as two of decode. */
const bestKnobs: readonly ScenarioVariant[] = sizes
  .filter(({ scale }) => scale === 1)
  .map((size) => ({ ...size, name: `${size.name}-scale-2`, policyOptions: { "prefill-load-scale": 2 } }));

/** Engines that first serve the requests with the least to compute. */
const ordered: ScenarioVariant = { name: "8x3.15M-ordered", engines: 8, engineOrder: "shortest" };

interface Replayed {
  readonly hit: number;
  readonly ttftMs: number;
}

/**
 * Hit shares match the published ones with four engines, too. Their effect on latency depends on the modelled engine's
 * times.
 */
const note = "how long the replayed engine takes to compute a prompt, and what its steps take beside it";

function compared(name: string, kvRouter: Replayed, roundRobin: Replayed, variant: string): readonly PublishedResult[] {
  const of = { source: `Dynamo 1.6.1, ${name}`, policy: "dynamo", baseline: "round_robin", variant };
  return [
    { ...of, metric: "cached_share", policyValue: kvRouter.hit, baselineValue: roundRobin.hit },
    {
      ...of,
      metric: "ttft_mean_s",
      policyValue: kvRouter.ttftMs / 1_000,
      baselineValue: roundRobin.ttftMs / 1_000,
      ...(variant.startsWith("4x") && { note }),
    },
  ];
}

const eight = { hit: 0.118, ttftMs: 307 };
const four = { hit: 0.134, ttftMs: 480 };
const eightSmall = { hit: 0.082, ttftMs: 321 };

export const mooncakeConversation: Scenario = {
  name: "mooncake-conversation",
  summary: "The conversation trace of Mooncake, 12,031 requests in an hour, jittered inside its steps of 3 s.",
  fleet: { preset: "b200-moe", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "epp_weighted", "dynamo", "least_work", "predicted_latency"],
  variants: [...sizes, ...bestKnobs, ordered],
  published: [
    ...compared("KV router", { hit: 0.286, ttftMs: 246 }, eight, "8x3.15M"),
    ...compared("best knobs", { hit: 0.308, ttftMs: 233 }, eight, "8x3.15M-scale-2"),
    ...compared("KV router", { hit: 0.235, ttftMs: 400 }, four, "4x3.15M"),
    ...compared("best knobs", { hit: 0.254, ttftMs: 375 }, four, "4x3.15M-scale-2"),
    ...compared("KV router", { hit: 0.199, ttftMs: 278 }, eightSmall, "8x1.05M"),
    ...compared("best knobs", { hit: 0.22, ttftMs: 264 }, eightSmall, "8x1.05M-scale-2"),
  ],
  isOpenLoop: true,
  trace: "conversation_trace.jsonl.gz",
  createWorkload(options) {
    const { seed, scale, trace } = options;
    if (trace === undefined || trace.length === 0) {
      const message = "mooncake-conversation replays conversation_trace.jsonl.gz of Mooncake: name the file";
      throw new EspalierError("config_invalid", message, { param: "trace" });
    }
    return createTraceReplay({ seed, rows: trace, speed: scale, stepMs: mooncakeStepMs, limits: limitsOf(options) });
  },
};

/** Tokens per block of the trace that this scenario imitates. */
const traceBlockTokens = 512;

/**
 * Imitates Mooncake's tool and agent trace (23,608 requests of 8,600 tokens in an hour). Clusters and rate are this
 * scenario's own. The other values give prompts the trace's mean length and a hit share of 0.59 in a cache that never
 * evicts: Dynamo's 0.45 to 0.50 are 76 to 84 % of that.
 */
const agents = {
  clusters: [
    { share: 0.46, tokens: 1 * traceBlockTokens },
    { share: 0.39, tokens: 12 * traceBlockTokens },
    { share: 0.15, tokens: 5 * traceBlockTokens },
  ],
  firstTokens: { median: 3_200, sigma: 0.9, least: 100, most: 60_000 },
  newTokens: { median: 900, sigma: 0.9, least: 50, most: 20_000 },
  outputTokens: { median: 30, sigma: 1.2, least: 1, most: 1_000 },
  meanFollowups: 0.6,
  pauseMeanMs: 5_000,
} satisfies ToolClusterParameters;

export const toolagentParameters = { agents, requestsPerS: 6.67, durationS: 900 } as const;

const meanTurns = 1 + agents.meanFollowups;

export const toolagent: Scenario = {
  name: "toolagent",
  summary: "Calls of three kinds of agents: prompts that begin alike, answers of a few tokens.",
  fleet: { preset: "b200-moe", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "epp_weighted", "least_work", "predicted_latency"],
  variants: [],
  // The published figure is a share of the run's own bound, not a ratio to another policy.
  published: [],
  durationS: toolagentParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: (toolagentParameters.requestsPerS / meanTurns) * scale,
      meanTurns,
      scriptOf: toolClusterScripts(agents, seed),
      limits: limitsOf(options, toolagentParameters.durationS),
    });
  },
};
