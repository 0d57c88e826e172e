import { Type } from "typebox";
import { list, map, section } from "./container.ts";
import { choice, flag, integer, number, text } from "./leaf.ts";

const modelName = (description: string) => text({ description, maxLength: 256 });

const tierCredits = ["cpu-credit", "disk-credit", "external-credit"] as const;

/** Names of policies, each with the options that it takes. */
export const policyOptions = {
  least_work: ["near-tie-tokens", "foreign-request-tokens", ...tierCredits],
  epp_weighted: [
    "queue-weight",
    "kv-cache-utilization-weight",
    "prefix-cache-weight",
    "active-request-weight",
    "token-load-weight",
    "no-hit-lru-weight",
    "token-load-threshold",
    "foreign-request-tokens",
    ...tierCredits,
  ],
  cache_aware: ["cache-threshold", "balance-abs-threshold", "balance-rel-threshold", ...tierCredits],
  prefix_hash: ["prefix-tokens", "load-factor", "points-per-weight"],
  consistent_hashing: ["load-factor", "points-per-weight"],
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
      description: `\`least_work\`, \`epp_weighted\`, \`cache_aware\`: what a matched token ${description}`,
      minimum: 0,
      maximum: 1,
    }),
  );

const optionSchemas = {
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
        "`least_work`, `epp_weighted`, `least_tokens`: what a queued request of a client outside the fleet is taken to " +
        "weigh, in tokens. 1024 unless given.",
      minimum: 0,
      maximum: 10_000_000,
    }),
  ),
  "near-tie-tokens": Type.Optional(
    integer({
      description:
        "`least_work`: tokens of prefill, at weight 1, by which engines may differ and count as equal. 64 unless given.",
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
  "queue-weight": scoreWeight("the queue that an engine reports. 2 unless given."),
  "kv-cache-utilization-weight": scoreWeight("the free share of an engine's KV blocks. 2 unless given."),
  "prefix-cache-weight": scoreWeight("the share of the prompt that is in an engine's cache. 3 unless given."),
  "active-request-weight": scoreWeight("the requests in flight. 0 unless given."),
  "token-load-weight": scoreWeight("the tokens in prefill and decode. 0 unless given."),
  "no-hit-lru-weight": scoreWeight("the order in which engines last took a prompt that no cache had. 0 unless given."),
  "token-load-threshold": Type.Optional(
    integer({
      description:
        "`epp_weighted`: tokens at an engine of weight 1 from which on its token load scores 0. 4194304 unless given.",
      minimum: 1,
      maximum: 1_000_000_000,
    }),
  ),
  "cpu-credit": tierCredit("in an engine's CPU memory is worth, as a share of one in its GPU. 0.75 unless given."),
  "disk-credit": tierCredit("on an engine's disk is worth. 0.25 unless given."),
  "external-credit": tierCredit("in a pool outside the engine is worth. 0.5 unless given."),
};

const policyOf = (description: string) =>
  section(
    description,
    {
      name: choice(policyNames, { description: "How an engine is chosen.", default: "least_work" }),
      ...optionSchemas,
    },
    { shorthand: "name" },
  );

export const policy = policyOf("How an engine is chosen for a request. A plain text stands for the name.");

export const pools = list(
  section("Settings for some models. The first pool with a matching pattern counts.", {
    models: list(modelName("A model's name, in which `*` stands for any text."), {
      description: "Which models.",
      minItems: 1,
      maxItems: 1_000,
    }),
    policy: Type.Optional(policyOf("In place of the general policy.")),
    "engine-api-key": Type.Optional(
      text({
        description: "Key that is sent to the engines as `authorization: Bearer`.",
        maxLength: 4_096,
        pattern: "^[\\x21-\\x7e]+$",
        expected: "a key of visible ASCII characters",
        isSecret: true,
      }),
    ),
    "forward-authorization": flag({
      description: "Pass the client's own `authorization` on to the engines.",
      default: false,
    }),
  }),
  { description: "Settings for some models; the first match counts.", maxItems: 1_000 },
);

export const models = section("Names that clients may use besides those that engines serve.", {
  aliases: map(modelName("The model it stands for."), {
    description: "Further names of models.",
    maxProperties: 10_000,
  }),
  splits: map(
    list(
      section("One side of a split.", {
        model: modelName("A model's name."),
        weight: number({ description: "Relative share.", minimum: 0, maximum: 1_000_000 }),
      }),
      { description: "The models that share the requests for a name.", minItems: 1, maxItems: 100 },
    ),
    {
      description: "Names whose requests are shared among models by weight; a session stays on its side.",
      maxProperties: 10_000,
    },
  ),
});

export const sessionKey = list(
  text({
    description: "Where to look.",
    maxLength: 140,
    pattern: "^(header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}|body:\\S{1,128})$",
    expected: "header:NAME or body:FIELD",
  }),
  {
    description: "Where the key that keeps a session together is looked for; the first that is there counts.",
    maxItems: 16,
    default: [
      "header:x-espalier-session-id",
      "header:x-session-id",
      "header:x-smg-routing-key",
      "body:session_id",
      "body:prompt_cache_key",
      "body:user",
    ],
  },
);

export const forwardPaths = list(
  text({
    description: "A path, in which `*` at the end stands for any text.",
    maxLength: 1_024,
    pattern: "^/[^\\s?#*]*\\*?$",
    expected: "a path that starts with /, with at most one * at its end",
  }),
  { description: "Further paths that are passed on to engines as they are.", maxItems: 1_000 },
);
