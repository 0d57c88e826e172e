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

export const prefix = section("Prefix index: tracking of the prefixes that engines cache.", {
  "block-size": integer({
    description:
      "Tokens per block of the router's prefix index. The block size of an engine that sends KV events must be a multiple or a divisor of it.",
    default: 16,
    minimum: 1,
    maximum: 1_024,
  }),
  seed: text({
    description: "Seed of the block hashes. It must be the same in all routers of a fleet.",
    default: "espalier-fleet",
    maxLength: 256,
  }),
  "placement-ttl": duration({
    description: "How long a prompt is assumed to stay in an engine's cache, without a complete feed of KV events.",
    default: "10m",
    minimum: "1s",
    maximum: "24h",
  }),
  "placement-tokens": integer({
    description: "Assumed KV cache size in tokens, if the engine's metrics do not report it.",
    default: 524_288,
    minimum: 1_024,
    maximum: 1_000_000_000,
  }),
});

export const kvEvents = section("KV events: cache reports of engines.", {
  mode: choice(["auto", "off"], {
    description:
      "Whether KV events are read: `auto` queries each engine without a `kv-events` entry for its publisher; `off` predicts caches from routing history.",
    default: "auto",
  }),
  listen: Type.Optional(
    zmqEndpoint(
      "ZeroMQ endpoint to bind for engines that connect to the router to publish. Each engine must use its id as the topic, or `kv@ID@MODEL`.",
      {
        wildcard: true,
      },
    ),
  ),
  "max-replays": integer({
    description: "Maximum concurrent replays of missed KV events.",
    default: 8,
    minimum: 1,
    maximum: 1_000,
  }),
});

export const kvPools = list(
  section("A KV pool: blocks stored outside the engines.", {
    name: text({
      description: "Unique name of the KV pool, equal on all routers of a mesh.",
      maxLength: 128,
      pattern: "^[\\x21-\\x7e]+$",
      expected: "a name of at most 128 visible ASCII characters",
    }),
    endpoint: Type.Optional(
      zmqEndpoint(
        "ZeroMQ endpoint where the KV pool publishes events in the form of engines' KV events: one stream for the whole pool. Without it and `mooncake`, the pool's blocks are those that its engines announce in external memory, as with LMCache's server.",
        { wildcard: false },
      ),
    ),
    replay: Type.Optional(
      zmqEndpoint("ZeroMQ endpoint where missed events of the KV pool are replayed.", { wildcard: false }),
    ),
    mooncake: Type.Optional(
      text({
        description:
          "URL of the HTTP server of a Mooncake Store's master (its `--metrics_port`), such as `http://mooncake-master:9003`, instead of `endpoint`. The router lists the store's keys every second, and learns from its engines' KV events what they are of. For vLLM with `MooncakeStoreConnector`.",
        maxLength: 2_048,
        pattern: "^https?://[^\\s/?#@\\\\]+$",
        expected: "an http:// or https:// URL without path",
      }),
    ),
    "key-prefix": text({
      description:
        "With `mooncake`: only keys that begin with this text are read, such as `Llama-3.1-8B-Instruct@`. Needed where engines of several models share a store.",
      minLength: 0,
      default: "",
    }),
    topic: text({
      description: "Topic prefix: only events whose topic starts with it are read.",
      minLength: 0,
      default: "",
    }),
    models: list(text({ description: "Name of a model. `*` matches any text.", maxLength: 256 }), {
      description: "Models whose engines use the KV pool. Blocks of different models must not share a pool.",
      default: ["*"],
      minItems: 1,
      maxItems: 1_000,
    }),
    labels: map(text({ description: "Value of a label.", minLength: 0, maxLength: 256 }), {
      description: "Labels that an engine must have, all of them, to use the KV pool.",
      maxProperties: 64,
    }),
  }),
  {
    description:
      "KV pools outside the engines, such as LMCache's or a Mooncake Store. A block in a pool counts as cached for each engine that uses the pool.",
    maxItems: 64,
  },
);

export const tokenizers = list(
  section(
    "Tokenization for some models. A plain string is the `path`.",
    {
      models: list(text({ description: "Name of a model. `*` matches any text.", maxLength: 256 }), {
        description: "Models that the entry applies to.",
        default: ["*"],
        maxItems: 1_000,
      }),
      mode: choice(["local", "engine", "bytes"], {
        description:
          "How prompts are tokenized: `local` uses the tokenizer and chat template in `path`; `engine` calls an engine's `/tokenize`; `bytes` hashes the bytes of prompts, which predicts cache hits but cannot be matched with KV events.",
        default: "local",
      }),
      engine: choice(["auto", "vllm-0.23", "vllm-0.32", "sglang-0.5.23"], {
        description:
          "Engine release whose rules turn chats into prompts, as releases differ. `auto` takes the newest known release of the kind of engine that serves the model; `vllm-0.23` is for vLLM before 0.26.",
        default: "auto",
      }),
      path: Type.Optional(filePath("Folder with the model's `tokenizer.json` and `tokenizer_config.json`.")),
    },
    { shorthand: "path" },
  ),
  {
    description:
      "How prompts are tokenized, by model. The first entry with a matching model applies; prompts for a model without an entry are hashed by their bytes.",
    maxItems: 1_000,
    flag: "tokenizer",
  },
);

export const tokenize = section("Limits of tokenization.", {
  budget: duration({
    description: "Longest time a request waits for its tokens. After that it is routed by the tokens known so far.",
    default: "50ms",
    minimum: "1ms",
    maximum: "10s",
  }),
  threads: integer({
    description: "Number of threads that tokenize long new texts.",
    default: 1,
    minimum: 1,
    maximum: 64,
  }),
  cache: size({
    description: "Memory for the tokens of earlier prompts, per model.",
    default: "64MiB",
    minimum: "1MiB",
    maximum: "16GiB",
  }),
});
