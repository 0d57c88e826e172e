import { defaultSessionKeyLadder, nameOfSource, prefixSource, type SessionKeySource } from "@espalier/api";
import { Type } from "typebox";
import { duration, filePath, flag, integer, list, map, number, section, text } from "../schema-builders.ts";
import { compiled } from "../settings-of.ts";
import { policyOf } from "./policies.ts";
import { ownSlo } from "./slo.ts";

const modelName = (description: string) => text({ description, maxLength: 256 });

export const policy = policyOf(
  "The routing policy, which chooses an engine for each request. A plain string is the `name`.",
);

export const plugins = list(filePath("A JavaScript module that exports `policies` or `hooks`."), {
  description: "Plugins: modules with custom policies and hooks. They run inside the router, with all its permissions.",
  maxItems: 32,
});

export const pools = list(
  section("Settings for some models. The first pool with a matching pattern applies.", {
    models: list(modelName("Name of a model. `*` matches any text."), {
      description: "Models that the pool applies to.",
      minItems: 1,
      maxItems: 1_000,
    }),
    policy: Type.Optional(policyOf("Routing policy of the pool. Default: the general `policy`.")),
    slo: ownSlo("of the pool's models", "the general `slo`"),
    "engine-api-key": Type.Optional(
      text({
        description: "API key that the router sends to the pool's engines, as `authorization: Bearer`.",
        maxLength: 4_096,
        pattern: "^[\\x21-\\x7e]+$",
        expected: "a key of visible ASCII characters",
        isSecret: true,
      }),
    ),
    "forward-authorization": flag({
      description: "Forward the client's `authorization` header to the pool's engines.",
      default: false,
    }),
    "scale-from-zero": section(
      "Requests of the pool while none of its engines is up, for example after scaling to zero.",
      {
        hold: duration({
          description:
            "How long a request waits in the router for the first engine of its model. After that it is answered with 503. Only for models that `models` names without `*`. `0s` answers at once.",
          default: "0s",
          minimum: "0s",
          maximum: "1h",
        }),
      },
    ),
  }),
  { description: "Settings for some models. The first pool with a matching pattern applies.", maxItems: 1_000 },
);

export const models = section("Model names for clients, in addition to those of engines.", {
  adapters: map(
    section("A LoRA adapter.", {
      model: modelName("Base model of the adapter. Every engine that serves it can load the adapter."),
      path: text({
        description: "Path or name under which the engines find the adapter: `lora_path` of vLLM.",
        maxLength: 4_096,
      }),
    }),
    {
      description:
        "LoRA adapters by name. The router has an engine load one when a request needs it: vLLM with `VLLM_ALLOW_RUNTIME_LORA_UPDATING`, SGLang with `--enable-lora`.",
      maxProperties: 1_000,
    },
  ),
  "max-loaded-adapters": integer({
    description:
      "Maximum `models.adapters` loaded in one engine. For another one, the least recently used idle adapter is unloaded; without an idle adapter, another engine is chosen.",
    minimum: 1,
    maximum: 200,
    default: 128,
  }),
  aliases: map(modelName("Model that the alias stands for."), {
    description: "Aliases of models.",
    maxProperties: 10_000,
  }),
  splits: map(
    list(
      section("One part of a split.", {
        model: modelName("Name of a model."),
        weight: number({ description: "Relative share of the requests.", minimum: 0, maximum: 1_000_000 }),
      }),
      { description: "Models that share the requests for the name.", minItems: 1, maxItems: 100 },
    ),
    {
      description:
        "Traffic splits: names whose requests are divided among models by weight. A session stays with its model.",
      maxProperties: 10_000,
    },
  ),
});

const header = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}";
const bodyField = "[^\\s/]{1,128}";

const sessionKeySource = text({
  description:
    "Header or body field that holds a session key; a field may be a path, `a.b`. After a slash: the header or field that names an agent of the session. `prefix`: without a key, a conversation of several requests is a program; it changes no decision.",
  maxLength: 264,
  pattern: `^(header:${header}(/${header})?|body:${bodyField}(/${bodyField})?|prefix)$`,
  expected: "header:NAME, body:FIELD or prefix",
});

/** One text says where and under which name. Names of headers are in lower case in code. */
function compileSource(written: string): SessionKeySource {
  if (written === nameOfSource(prefixSource)) return prefixSource;
  const [from, names] = [written.slice(0, written.indexOf(":")), written.slice(written.indexOf(":") + 1)];
  const [name = "", agent] = (from === "header" ? names.toLowerCase() : names).split("/");
  const source = { from: from === "header" ? from : "body", name } as const;
  return agent === undefined ? source : { ...source, agent };
}

export const sessionKey = list(compiled(sessionKeySource, compileSource), {
  description:
    "Headers and body fields that may hold the session key, which keeps a session together. The first one present is used.",
  maxItems: 32,
  default: defaultSessionKeyLadder.map(nameOfSource),
});

export const forwardPaths = list(
  text({
    description: "A path. `*` at its end matches any text.",
    maxLength: 1_024,
    pattern: "^/[^\\s?#*]*\\*?$",
    expected: "a path that starts with /, with at most one * at its end",
  }),
  { description: "Further paths that are forwarded to engines unchanged.", maxItems: 1_000 },
);

const tokens = { minimum: 1, maximum: 10_000_000 };

export const disaggregation = section(
  "Disaggregation: prefill on one engine, decode on another. Both need `kv-transfer`.",
  {
    "threshold-tokens": Type.Optional(
      integer({
        ...tokens,
        description:
          "Uncached prompt tokens at which a request is split between two engines. Default: computed for each request, between `disaggregation.min-tokens` and `disaggregation.max-tokens`.",
      }),
    ),
    "min-tokens": integer({
      ...tokens,
      description: "Lower bound of the computed threshold for splitting a request.",
      default: 2_048,
    }),
    "max-tokens": integer({
      ...tokens,
      description: "Upper bound of the computed threshold for splitting a request.",
      default: 131_072,
    }),
    "apply-role-balance": flag({
      description:
        "Role balancing: assign each engine of role `both` with `kv-transfer` to prefill or decode, by the recent mix of requests.",
      default: false,
    }),
  },
);
