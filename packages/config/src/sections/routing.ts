import { Type } from "typebox";
import { flag, integer, list, map, number, section, text } from "../schema-builders.ts";
import { policyOf } from "./policies.ts";

const modelName = (description: string) => text({ description, maxLength: 256 });

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
  adapters: map(
    section("One LoRA adapter.", {
      model: modelName("The model that it is for. All engines that serve it can be asked for the adapter."),
      path: text({ description: "Where the engines find it: `lora_path` of vLLM.", maxLength: 4_096 }),
    }),
    {
      description:
        "LoRA adapters by name that the router has engines load when they are asked for: vLLM's with " +
        "`VLLM_ALLOW_RUNTIME_LORA_UPDATING`, SGLang's with `--enable-lora`.",
      maxProperties: 1_000,
    },
  ),
  "max-loaded-adapters": integer({
    description:
      "How many of `adapters` an engine has loaded at once. For one more, the one used longest ago is unloaded, if " +
      "nobody uses it; else another engine is taken.",
    minimum: 1,
    maximum: 200,
    default: 128,
  }),
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

const tokens = { minimum: 1, maximum: 10_000_000 };

export const disaggregation = section(
  "When one engine computes a prompt and another one answers; both need `kv-transfer`.",
  {
    "threshold-tokens": Type.Optional(
      integer({
        ...tokens,
        description:
          "Prompts with at least so many tokens that no cache holds are split. Found anew for each request unless given.",
      }),
    ),
    "min-tokens": integer({ ...tokens, description: "Bound below what is found for a request.", default: 2_048 }),
    "max-tokens": integer({ ...tokens, description: "Bound above it.", default: 131_072 }),
    "apply-role-balance": flag({
      description:
        "Keep each engine of role `both` that hands over KV blocks to one side, as many to each as the mix of recent " +
        "requests asks for.",
      default: false,
    }),
  },
);
