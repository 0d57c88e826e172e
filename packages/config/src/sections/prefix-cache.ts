import { Type } from "typebox";
import { choice, duration, filePath, integer, list, map, section, size, text } from "../schema-builders.ts";

/** An endpoint of ZeroMQ over TCP. */
export const zmqEndpoint = (description: string, { wildcard }: { readonly wildcard: boolean }) =>
  text({
    description,
    maxLength: 512,
    pattern: wildcard
      ? "^tcp://[^\\s/:]+:\\d{1,5}$|^tcp://\\[[0-9a-fA-F:]+\\]:\\d{1,5}$"
      : "^tcp://[^\\s/*]+:\\d{1,5}$",
    expected: wildcard ? "tcp://HOST:PORT, where HOST may be *" : "tcp://HOST:PORT",
  });

export const prefix = section("What the router keeps of the prefixes that engines hold.", {
  "block-size": integer({
    description:
      "Tokens per block of the router's index. The block size of an engine that sends KV events must be a multiple of " +
      "it, or divide it.",
    default: 16,
    minimum: 1,
    maximum: 1_024,
  }),
  seed: text({
    description: "Enters every hash; the same in all routers of a fleet.",
    default: "espalier-fleet",
    maxLength: 256,
  }),
  "placement-ttl": duration({
    description:
      "How long a prompt that was sent to an engine is taken to be in its cache, where no complete feed of KV events says.",
    default: "10m",
    minimum: "1s",
    maximum: "24h",
  }),
  "placement-tokens": integer({
    description:
      "How many tokens of such prompts an engine is taken to hold, where its metrics do not tell the size of its KV cache.",
    default: 524_288,
    minimum: 1_024,
    maximum: 1_000_000_000,
  }),
});

export const kvEvents = section("KV events, by which engines tell what they cache.", {
  mode: choice(["auto", "off"], {
    description:
      "`auto` asks each engine whether it publishes them, unless its own entry says where; `off` reads none, and what " +
      "engines hold is predicted from what they were sent.",
    default: "auto",
  }),
  listen: Type.Optional(
    zmqEndpoint("Where engines that dial publish to. Each must use its id as topic, or `kv@ID@MODEL`.", {
      wildcard: true,
    }),
  ),
  "max-replays": integer({
    description: "Replays of missed events that run at the same time.",
    default: 8,
    minimum: 1,
    maximum: 1_000,
  }),
});

export const kvPools = list(
  section("A pool of KV blocks outside the engines, which publishes what it holds as engines publish KV events.", {
    name: text({
      description: "Unique name. Routers of a mesh know the pool by it.",
      maxLength: 128,
      pattern: "^[\\x21-\\x7e]+$",
      expected: "a name of at most 128 visible ASCII characters",
    }),
    endpoint: zmqEndpoint("Where it publishes; one stream for the whole pool.", { wildcard: false }),
    replay: Type.Optional(zmqEndpoint("Where missed events can be asked for.", { wildcard: false })),
    topic: text({ description: "Only events with a topic that starts so.", minLength: 0, default: "" }),
    models: list(text({ description: "A model's name, in which `*` stands for any text.", maxLength: 256 }), {
      description:
        "Only engines that serve one of these fetch from it. Blocks of different models must not meet in a pool.",
      default: ["*"],
      minItems: 1,
      maxItems: 1_000,
    }),
    labels: map(text({ description: "A label's value.", minLength: 0, maxLength: 256 }), {
      description: "Only engines with all of these labels fetch from it.",
      maxProperties: 64,
    }),
  }),
  {
    description:
      "Pools of KV blocks that engines fetch from, like those of LMCache: what is in them counts for each of these engines.",
    maxItems: 64,
  },
);

export const tokenizers = list(
  section(
    "How prompts for some models become tokens. A plain text stands for the path.",
    {
      models: list(text({ description: "A model's name, in which `*` stands for any text.", maxLength: 256 }), {
        description: "Which models.",
        default: ["*"],
        maxItems: 1_000,
      }),
      mode: choice(["local", "engine", "bytes"], {
        description:
          "`local` uses the tokenizer and chat template in `path`; `engine` asks an engine's `/tokenize`; `bytes` cuts " +
          "prompts over their bytes, which predicts, but cannot be compared with KV events.",
        default: "local",
      }),
      engine: choice(["auto", "vllm-0.23", "vllm-0.32", "sglang-0.5.23"], {
        description:
          "Whose rules turn chats into prompts, as releases of engines differ: `auto` takes the newest of the kind of engine " +
          "that serves the model; `vllm-0.23` is for vLLM before 0.26.",
        default: "auto",
      }),
      path: Type.Optional(filePath("Folder with `tokenizer.json` and `tokenizer_config.json`, as the model's own.")),
    },
    { shorthand: "path" },
  ),
  {
    description: "How prompts become tokens; the first match counts, and a model without one is cut over its bytes.",
    maxItems: 1_000,
    flag: "tokenizer",
  },
);

export const tokenize = section("Limits of tokenizing.", {
  budget: duration({
    description: "How long a request waits for its tokens; after that it is routed by what is known of them.",
    default: "50ms",
    minimum: "1ms",
    maximum: "10s",
  }),
  threads: integer({ description: "Threads that tokenize what is new and long.", default: 1, minimum: 1, maximum: 64 }),
  cache: size({
    description: "Memory for what is known of earlier prompts, per model.",
    default: "64MiB",
    minimum: "1MiB",
    maximum: "16GiB",
  }),
});
