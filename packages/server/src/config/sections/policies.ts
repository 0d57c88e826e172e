import { Type } from "typebox";
import { type Alias, integer, number, section } from "../schema-builders.ts";
import { compiled } from "../settings-of.ts";

const tierCredits = ["cpu-credit", "disk-credit", "external-credit"] as const;

/** The policies by name, each with the options that it takes. */
export const policyOptions = {
  predicted_latency: ["foreign-request-tokens", ...tierCredits],
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
    "fewest-sessions",
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

const policyNames = Object.keys(policyOptions);

/** Completes "X is not ...". */
export const policyNameExpected = `one of ${policyNames.join(", ")} or a policy of \`plugins\``;

const scoreWeight = (description: string) =>
  Type.Optional(number({ description: `\`epp_weighted\`: weight of ${description}`, minimum: 0, maximum: 1_000_000 }));

const tierCredit = (description: string) =>
  Type.Optional(
    number({
      description: `Policies that use cached prefixes: what a matched token ${description}`,
      minimum: 0,
      maximum: 1,
    }),
  );

const optionSchemas = {
  "load-factor": Type.Optional(
    Type.Unsafe<number>({
      anyOf: [{ const: 0 }, { type: "number", minimum: 1, maximum: 1_000 }],
      description:
        "`consistent_hashing`, `prefix_hash`: bound on an engine's requests in flight, as a multiple of its fair share. 0 removes the bound. Default: 1.25.",
      espalier: { kind: "number", expected: "0, or a number from 1 to 1000" },
    }),
  ),
  "points-per-weight": Type.Optional(
    integer({
      description:
        "`consistent_hashing`, `prefix_hash`: points on the hash ring for an engine of weight 1. Default: 160.",
      minimum: 1,
      maximum: 4_096,
    }),
  ),
  "max-idle-seconds": Type.Optional(
    number({
      description:
        "`sticky`: seconds after which an idle session may lose its binding to an engine; the binding lasts at least three quarters of it. Default: 14400.",
      minimum: 1,
      maximum: 86_400,
    }),
  ),
  "session-load-factor": Type.Optional(
    Type.Unsafe<number>({
      anyOf: [{ const: 0 }, { type: "number", minimum: 1, maximum: 1_000 }],
      description:
        "`sticky`: bound on an engine's requests in flight, as a multiple of its fair share, above which its sessions move. 0 removes the bound. Default: 2.",
      espalier: { kind: "number", expected: "0, or a number from 1 to 1000" },
    }),
  ),
  "session-free-requests": Type.Optional(
    integer({
      description:
        "`sticky`: requests in flight at an engine of weight 1 below which its sessions never move. Default: 8.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "fewest-sessions": Type.Optional(
    integer({
      description:
        "`sticky`: where a session begins: 1 at the engine with the fewest live sessions, over all routers, 0 at the one with the least work. Default: 0.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "prefix-tokens": Type.Optional(
    integer({
      description: "`prefix_hash`: tokens at the start of a prompt that are hashed, in full blocks. Default: 256.",
      minimum: 1,
      maximum: 65_536,
    }),
  ),
  "foreign-request-tokens": Type.Optional(
    integer({
      description:
        "Policies that count tokens: assumed size, in tokens, of a queued request from a client outside the fleet. Default: 1024.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "near-tie-tokens": Type.Optional(
    integer({
      description:
        "`least_work`, `sticky`: difference in prefill tokens, at weight 1, up to which engines count as equal. Default: 64.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "adapter-load-tokens": Type.Optional(
    integer({
      description:
        "`least_work`, `sticky`: cost of loading a LoRA adapter, in tokens of prefill. 0 ignores adapters. Default: 1024.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "cache-threshold": Type.Optional(
    number({
      description:
        "`cache_aware`: share of the prompt that must be cached at an engine for the match to decide; the match must exceed it. Default: 0.3.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "balance-abs-threshold": Type.Optional(
    integer({
      description:
        "`cache_aware`: loads count as imbalanced, and caches are ignored, if the highest load exceeds the lowest by more than this many requests in flight, at weight 1, and `balance-rel-threshold` is exceeded too. Default: 64.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "balance-rel-threshold": Type.Optional(
    number({
      description:
        "`cache_aware`: loads count as imbalanced if the highest is more than this many times the lowest and `balance-abs-threshold` is exceeded too. Default: 1.5.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "miss-to-free-cache": Type.Optional(
    integer({
      description:
        "`cache_aware`: where to send a prompt without a match above `cache-threshold`: 1 to the emptiest cache, 0 to the engine with the fewest requests in flight. Default: 0.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "queue-weight": scoreWeight("the queue length that an engine reports. Default: 2."),
  "kv-cache-utilization-weight": scoreWeight("the free share of an engine's KV blocks. Default: 2."),
  "prefix-cache-weight": scoreWeight("the share of the prompt that an engine has cached. Default: 3."),
  "max-prefix-tokens": Type.Optional(
    integer({
      description:
        "`epp_weighted`: tokens at the start of a prompt over which the cached share is computed. Default: 131072.",
      minimum: 1,
      maximum: 100_000_000,
    }),
  ),
  "active-request-weight": scoreWeight("the requests in flight. Default: 0."),
  "token-load-weight": scoreWeight("the prefill tokens in flight, including the request's own prompt. Default: 0."),
  "no-hit-lru-weight": scoreWeight("how recently an engine took a prompt that no cache held. Default: 0."),
  "lora-affinity-weight": scoreWeight(
    "the state of the requested LoRA adapter at an engine: loaded, a free slot, or neither. Default: 0.",
  ),
  "token-load-threshold": Type.Optional(
    integer({
      description:
        "`epp_weighted`: tokens at an engine of weight 1 at which its token load scores 0. Default: 4194304.",
      minimum: 1,
      maximum: 1_000_000_000,
    }),
  ),
  "affinity-threshold": Type.Optional(
    number({
      description:
        "`affinity_filter`: cached share of the prompt from which an engine counts as holding the prompt. Default: 0.8.",
      minimum: 0,
      maximum: 1,
    }),
  ),
  "max-ttft-penalty-ms": Type.Optional(
    integer({
      description:
        "`affinity_filter`: milliseconds by which engines that hold the prompt may be slower, by the prompts in flight there, than the best other engine. 0 removes the bound. Default: 18000.",
      minimum: 0,
      maximum: 86_400_000,
    }),
  ),
  "prefill-tokens-per-second": Type.Optional(
    number({
      description:
        "`affinity_filter`: prefill tokens per second of an engine of weight 1, from which `max-ttft-penalty-ms` is computed. Default: 15928.",
      minimum: 1,
      maximum: 100_000_000,
    }),
  ),
  "prefill-load-scale": Type.Optional(
    number({
      description: "`dynamo`: cost of a block of prefill, relative to one of decode. Default: 1.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  temperature: Type.Optional(
    number({
      description:
        "`dynamo`: sampling temperature. 0 takes the engine with the lowest cost. Above 0, engines are drawn at random: the one with the highest cost is exp(1 / temperature) times less likely than the one with the lowest. Default: 0.",
      minimum: 0,
      maximum: 1_000_000,
    }),
  ),
  "block-size": Type.Optional(
    integer({
      description: "`dynamo`: tokens per block. Default: 16.",
      minimum: 1,
      maximum: 65_536,
    }),
  ),
  "cpu-credit": tierCredit("in an engine's CPU memory is worth, relative to one in its GPU. Default: 0.75."),
  "disk-credit": tierCredit("on an engine's disk is worth, relative to one in its GPU. Default: 0.25."),
  "external-credit": tierCredit("in a KV pool outside the engine is worth, relative to one in its GPU. Default: 0.5."),
};

/** A policy by name. Options that were not set are absent: the policy has its own defaults. */
export interface PolicyConfig {
  readonly name: string;
  /** Of its random choices; drawn at the start when undefined. */
  readonly seed?: number | undefined;
  readonly options: Readonly<Record<string, number>>;
}

/**
 * A section with a policy's name and options. Whether the policy takes them is checked separately. Options keep their names
 * of the file, by which policies read them, those of plugins too.
 */
export const policyOf = (description: string) =>
  compiled(policySection(description), (_, { name, seed, ...options }): PolicyConfig => ({ name, seed, options }));

const policySection = (description: string) =>
  section(
    description,
    {
      name: Type.Unsafe<string>({
        // Editors offer the first; whether there is another of that name is checked with the plugins.
        anyOf: [
          { type: "string", enum: policyNames },
          { type: "string", minLength: 1, maxLength: 64 },
        ],
        description: "Name of the routing policy.",
        default: "predicted_latency",
        espalier: { kind: "text", expected: policyNameExpected },
      }),
      seed: Type.Optional(
        integer({
          description:
            "Seed of random choices. Runs with the same seed, requests, order and load reports choose the same engines. Default: random.",
          minimum: 0,
          maximum: 4_294_967_295,
        }),
      ),
      ...optionSchemas,
    },
    { shorthand: "name", aliases: policyAliases, replaced: { objective: "slo.tpot" } },
  );

const sglang = (name: string): Alias => ({ name, of: "SGLang and SMG", isFlag: true });
const dynamo = (name: string): Alias => ({ name, of: "NVIDIA Dynamo", isFlag: true });
/** llm-d has these options in files only; a scorer's weight is a field of the scorer. */
const llmD = (name: string): Alias => ({ name, of: "llm-d", isFlag: false });

/** Options of policies, and their names in the routers that the policies come from. Units and meaning are the same. */
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
