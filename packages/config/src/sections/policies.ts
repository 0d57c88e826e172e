import { Type } from "typebox";
import { type Alias, choice, integer, number, section } from "../schema-builders.ts";

const tierCredits = ["cpu-credit", "disk-credit", "external-credit"] as const;

/** Names of policies, each with the options that it takes. */
export const policyOptions = {
  predicted_latency: ["objective", "foreign-request-tokens", ...tierCredits],
  least_work: ["near-tie-tokens", "adapter-load-tokens", "foreign-request-tokens", ...tierCredits],
  epp_weighted: [
    "queue-weight",
    "kv-cache-utilization-weight",
    "prefix-cache-weight",
    "max-prefix-tokens",
    "active-request-weight",
    "token-load-weight",
    "no-hit-lru-weight",
    "lora-affinity-weight",
    "token-load-threshold",
    "foreign-request-tokens",
    ...tierCredits,
  ],
  affinity_filter: [
    "affinity-threshold",
    "max-ttft-penalty-ms",
    "prefill-tokens-per-second",
    "foreign-request-tokens",
    ...tierCredits,
  ],
  dynamo: ["prefill-load-scale", "temperature", "block-size", "foreign-request-tokens", ...tierCredits],
  lmetric: ["foreign-request-tokens", ...tierCredits],
  cache_aware: [
    "cache-threshold",
    "balance-abs-threshold",
    "balance-rel-threshold",
    "miss-to-free-cache",
    ...tierCredits,
  ],
  prefix_hash: ["prefix-tokens", "load-factor", "points-per-weight"],
  consistent_hashing: ["load-factor", "points-per-weight"],
  sticky: [
    "max-idle-seconds",
    "session-load-factor",
    "session-free-requests",
    "near-tie-tokens",
    "adapter-load-tokens",
    "foreign-request-tokens",
    ...tierCredits,
  ],
  least_tokens: ["foreign-request-tokens"],
  least_connections: [],
  power_of_two: [],
  round_robin: [],
  random: [],
} as const satisfies Readonly<Record<string, readonly string[]>>;

type PolicyName = keyof typeof policyOptions;

const policyNames = Object.keys(policyOptions) as PolicyName[];

const scoreWeight = (description: string) =>
  Type.Optional(number({ description: `\`epp_weighted\`: weight of ${description}`, minimum: 0, maximum: 1_000_000 }));

const tierCredit = (description: string) =>
  Type.Optional(
    number({
      description: `In policies that look at caches: what a matched token ${description}`,
      minimum: 0,
      maximum: 1,
    }),
  );

const optionSchemas = {
  objective: Type.Optional(
    Type.Unsafe<string>({
      type: "string",
      enum: ["balanced", "ttft", "e2e", "throughput"],
      description:
        "`predicted_latency`: what counts most: first tokens (`ttft`), answers to their end (`e2e`), tokens per second " +
        "(`throughput`), or all of them (`balanced`, unless given).",
      espalier: { kind: "text", expected: "one of balanced, ttft, e2e, throughput" },
    }),
  ),
  "load-factor": Type.Optional(
    Type.Unsafe<number>({
      anyOf: [{ const: 0 }, { type: "number", minimum: 1, maximum: 1_000 }],
      description:
        "`consistent_hashing`, `prefix_hash`: how far above its even share of the requests in flight an engine may go; " +
        "0 removes the bound. 1.25 unless given.",
      espalier: { kind: "number", expected: "0, or a number from 1 to 1000" },
    }),
  ),
  "points-per-weight": Type.Optional(
    integer({
      description:
        "`consistent_hashing`, `prefix_hash`: points on the ring of an engine of weight 1. 160 unless given.",
      minimum: 1,
      maximum: 4_096,
    }),
  ),
  "max-idle-seconds": Type.Optional(
    number({
      description:
        "`sticky`: how long a session without requests stays bound to its engine; at least three quarters of it. 14400 " +
        "unless given.",
      minimum: 1,
      maximum: 86_400,
    }),
  ),
  "session-load-factor": Type.Optional(
    Type.Unsafe<number>({
      anyOf: [{ const: 0 }, { type: "number", minimum: 1, maximum: 1_000 }],
      description:
        "`sticky`: how far above its even share of the requests in flight an engine may go before its sessions move; 0 " +
        "removes the bound. 2 unless given.",
      espalier: { kind: "number", expected: "0, or a number from 1 to 1000" },
    }),
  ),
  "session-free-requests": Type.Optional(
    integer({
      description:
        "`sticky`: requests in flight at an engine of weight 1 with fewer of which it keeps its sessions whatever others " +
        "have. 8 unless given.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "prefix-tokens": Type.Optional(
    integer({
      description:
        "`prefix_hash`: how many tokens at the start of a prompt are hashed, in full blocks. 256 unless given.",
      minimum: 1,
      maximum: 65_536,
    }),
  ),
  "foreign-request-tokens": Type.Optional(
    integer({
      description:
        "In policies that count tokens: what a queued request of a client outside the fleet is taken to weigh, in " +
        "tokens. 1024 unless given.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "near-tie-tokens": Type.Optional(
    integer({
      description:
        "`least_work`, `sticky`: tokens of prefill, at weight 1, by which engines may differ and count as equal. 64 unless given.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "adapter-load-tokens": Type.Optional(
    integer({
      description:
        "`least_work`, `sticky`: what loading a LoRA adapter costs an engine, in tokens of prefill; 0 leaves adapters out of " +
        "account. 1024 unless given.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "cache-threshold": Type.Optional(
    number({
      description:
        "`cache_aware`: the share of the prompt of which more than this must be in an engine's cache for the match to " +
        "decide. 0.3 unless given.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "balance-abs-threshold": Type.Optional(
    integer({
      description:
        "`cache_aware`: loads are far apart, so that caches do not count, when the highest exceeds the lowest by more " +
        "than this many requests in flight, at weight 1. 64 unless given.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "balance-rel-threshold": Type.Optional(
    number({
      description: "`cache_aware`: and is more than this many times the lowest. 1.5 unless given.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "miss-to-free-cache": Type.Optional(
    integer({
      description:
        "`cache_aware`: 1 sends a prompt without such a match where the cache holds least, 0 to the fewest requests in " +
        "flight. 0 unless given.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "queue-weight": scoreWeight("the queue that an engine reports. 2 unless given."),
  "kv-cache-utilization-weight": scoreWeight("the free share of an engine's KV blocks. 2 unless given."),
  "prefix-cache-weight": scoreWeight("the share of the prompt that is in an engine's cache. 3 unless given."),
  "max-prefix-tokens": Type.Optional(
    integer({
      description:
        "`epp_weighted`: tokens at the beginning of a prompt of which the share that is in a cache is taken. 131072 unless " +
        "given.",
      minimum: 1,
      maximum: 100_000_000,
    }),
  ),
  "active-request-weight": scoreWeight("the requests in flight. 0 unless given."),
  "token-load-weight": scoreWeight("the prefill in flight and of the prompt in hand. 0 unless given."),
  "no-hit-lru-weight": scoreWeight("the order in which engines last took a prompt that no cache had. 0 unless given."),
  "lora-affinity-weight": scoreWeight(
    "how an engine stands to the LoRA adapter that is asked for: loaded, with a slot for it, or not. 0 unless given.",
  ),
  "token-load-threshold": Type.Optional(
    integer({
      description:
        "`epp_weighted`: tokens at an engine of weight 1 from which on its token load scores 0. 4194304 unless given.",
      minimum: 1,
      maximum: 1_000_000_000,
    }),
  ),
  "affinity-threshold": Type.Optional(
    number({
      description: "`affinity_filter`: the share of the prompt from which on an engine holds it. 0.8 unless given.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "max-ttft-penalty-ms": Type.Optional(
    integer({
      description:
        "`affinity_filter`: milliseconds by which the prompts in flight at engines that hold the prompt may take longer " +
        "than at the best other one; 0 removes the bound. 18000 unless given.",
      minimum: 0,
      maximum: 86_400_000,
    }),
  ),
  "prefill-tokens-per-second": Type.Optional(
    number({
      description:
        "`affinity_filter`: prefill of an engine of weight 1, by which those milliseconds are reckoned. 15928 unless " +
        "given.",
      minimum: 1,
      maximum: 100_000_000,
    }),
  ),
  "prefill-load-scale": Type.Optional(
    number({
      description: "`dynamo`: what a block of prefill costs beside one of decode. 1 unless given.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  temperature: Type.Optional(
    number({
      description:
        "`dynamo`: 0, as unless given, takes the lowest cost; above it engines are drawn, the one of the highest cost " +
        "exp(1 / temperature) times less likely than the one of the lowest.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "block-size": Type.Optional(
    integer({
      description: "`dynamo`: tokens in a block. 16 unless given.",
      minimum: 1,
      maximum: 65_536,
    }),
  ),
  "cpu-credit": tierCredit("in an engine's CPU memory is worth, as a share of one in its GPU. 0.75 unless given."),
  "disk-credit": tierCredit("on an engine's disk is worth. 0.25 unless given."),
  "external-credit": tierCredit("in a pool outside the engine is worth. 0.5 unless given."),
};

/** A section that names a policy and sets options of it; which of them it takes is checked across keys. */
export const policyOf = (description: string) =>
  section(
    description,
    {
      name: choice(policyNames, { description: "How an engine is chosen.", default: "predicted_latency" }),
      ...optionSchemas,
    },
    { shorthand: "name", aliases: policyAliases },
  );

const sglang = (name: string): Alias => ({ name, of: "SGLang and SMG", isFlag: true });
const dynamo = (name: string): Alias => ({ name, of: "NVIDIA Dynamo", isFlag: true });
/** Its options stand in files alone; the weight of a score is written beside the scorer's name. */
const llmD = (name: string): Alias => ({ name, of: "llm-d", isFlag: false });

/** Options of policies, and what the routers that the policies come from call them. Units and meaning are the same. */
const policyAliases: Readonly<Record<string, readonly Alias[]>> = {
  "cache-threshold": [sglang("cache-threshold")],
  "balance-abs-threshold": [sglang("balance-abs-threshold")],
  "balance-rel-threshold": [sglang("balance-rel-threshold")],
  "prefix-tokens": [sglang("prefix-token-count")],
  "load-factor": [sglang("prefix-hash-load-factor")],
  "max-idle-seconds": [sglang("max-idle-secs")],
  "queue-weight": [llmD("queue-scorer")],
  "kv-cache-utilization-weight": [llmD("kv-cache-utilization-scorer")],
  "prefix-cache-weight": [llmD("prefix-cache-scorer")],
  "active-request-weight": [llmD("active-request-scorer")],
  "token-load-weight": [llmD("token-load-scorer")],
  "no-hit-lru-weight": [llmD("no-hit-lru-scorer")],
  "lora-affinity-weight": [llmD("lora-affinity-scorer")],
  "max-prefix-tokens": [llmD("maxPrefixTokensToMatch")],
  "token-load-threshold": [llmD("queueThresholdTokens")],
  "affinity-threshold": [llmD("affinityThreshold")],
  "max-ttft-penalty-ms": [llmD("maxTTFTPenaltyMs")],
  "prefill-tokens-per-second": [llmD("peakPrefillThroughput")],
  "prefill-load-scale": [dynamo("router-prefill-load-scale")],
  temperature: [dynamo("router-temperature")],
  "block-size": [dynamo("kv-cache-block-size")],
  "cpu-credit": [dynamo("router-host-cache-hit-weight")],
  "disk-credit": [dynamo("router-disk-cache-hit-weight")],
  "external-credit": [dynamo("shared-cache-multiplier")],
};
