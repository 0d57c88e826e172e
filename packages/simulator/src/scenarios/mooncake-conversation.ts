import { EspalierError } from "@espalier/common";
import { mooncakeStepMs } from "@espalier/workload";
import { createTraceReplay } from "../clients/trace-replay.ts";
import { limitsOf } from "./limits-of.ts";
import type { PublishedResult, Scenario, ScenarioVariant } from "./scenario.ts";

/** The fleets of Dynamo 1.6.1's own offline replay of the file, and twice its speed. */
export const mooncakeParameters = {
  engines: [8, 4],
  /** KV tokens of an engine, in thousands, by the name that they have here; the preset holds the first. */
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

/** The best knobs that the source found for its router: a block of prefill costs two of decode. */
const bestKnobs: readonly ScenarioVariant[] = sizes
  .filter(({ scale }) => scale === 1)
  .map((size) => ({ ...size, name: `${size.name}-scale-2`, policyOptions: { "prefill-load-scale": 2 } }));

/** Engines that take those first on which they compute least. */
const ordered: ScenarioVariant = { name: "8x3.15M-ordered", engines: 8, engineOrder: "shortest" };

interface Replayed {
  readonly hit: number;
  readonly ttftMs: number;
}

/** Hits come out as published with four engines, too; what they are worth depends on the times of its modelled engine. */
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
