/**
 * What the sample configurations of llm-d's router say (commit ebab687: deploy/config, test, docs, the chart and the READMEs
 * of plugins), each in the shortest form that says the same.
 */
export const llmdSamples: Readonly<Record<string, string>> = {
  "data parallel": sample({
    plugins: [
      "prefix-cache-scorer",
      "decode-filter",
      "max-score-picker",
      handler("data-parallel", { primaryPort: 8000 }),
    ],
    profiles: { default: ["decode-filter", "max-score-picker", ["prefix-cache-scorer", 2]] },
  }),
  "data parallel, ports by default": sample({
    plugins: ["decode-filter", "max-score-picker", handler("data-parallel")],
    profiles: { default: ["decode-filter", "max-score-picker"] },
  }),
  bursts: sample({
    plugins: [
      tokens("org/model", "http://vllm.default.svc.cluster.local:8000"),
      ...["single-profile-handler", "decode-filter", "load-aware-scorer", "max-score-picker"],
      ["burst-prefix-cache-producer", { windowDurationMs: 100, maxPerReplica: -1, minColocateBlocks: 0 }],
      prefixScorer("burst-prefix-cache-producer"),
    ],
    profiles: {
      default: ["decode-filter", ["prefix-cache-scorer", 2], ["load-aware-scorer", 1], "max-score-picker"],
    },
  }),
  "prefix alone": sample({
    plugins: ["prefix-cache-scorer", "decode-filter", "max-score-picker", "single-profile-handler"],
    profiles: { default: ["decode-filter", "max-score-picker", ["prefix-cache-scorer", 2]] },
  }),
  "prefix and load": sample({
    plugins: [
      "prefix-cache-scorer",
      "decode-filter",
      "load-aware-scorer",
      "max-score-picker",
      "single-profile-handler",
    ],
    profiles: {
      default: ["decode-filter", ["prefix-cache-scorer", 1], ["load-aware-scorer", 1], "max-score-picker"],
    },
  }),
  "image embeddings": sample({
    plugins: [
      tokens("org/model"),
      ...["endpoint-notification-source", "metrics-data-source", "core-metrics-extractor", "queue-scorer"],
      ...["mm-embeddings-cache-scorer", "max-score-picker", "single-profile-handler", "decode-filter"],
      ["mm-embeddings-cache-producer", { cacheSizeInMB: 2048 }],
      precise({ tokenProcessorConfig: { blockSize: 64 }, indexerConfig: indexMetrics(true) }),
      prefixScorer("precise-prefix-cache-producer"),
    ],
    profiles: {
      default: [
        "decode-filter",
        ["prefix-cache-scorer", 10],
        ["mm-embeddings-cache-scorer", 4],
        ["queue-scorer", 1],
        "max-score-picker",
      ],
    },
    dataLayer: {
      sources: [
        source("metrics-data-source", "core-metrics-extractor"),
        source("endpoint-notification-source", "mm-embeddings-cache-producer", "precise-prefix-cache-producer"),
      ],
    },
  }),
  "precise prefixes": sample({
    plugins: [
      tokens("org/model"),
      ...["endpoint-notification-source", "metrics-data-source", "core-metrics-extractor", "single-profile-handler"],
      ...["decode-filter", "kv-cache-utilization-scorer", "queue-scorer", "max-score-picker"],
      precise({ tokenProcessorConfig: { blockSize: 64 }, indexerConfig: indexMetrics(true) }),
      prefixScorer("precise-prefix-cache-producer"),
    ],
    profiles: {
      default: [
        "decode-filter",
        ["prefix-cache-scorer", 2],
        ["kv-cache-utilization-scorer", 1],
        ["queue-scorer", 1],
        "max-score-picker",
      ],
    },
    dataLayer: {
      sources: [
        source("metrics-data-source", "core-metrics-extractor"),
        source("endpoint-notification-source", "precise-prefix-cache-producer"),
      ],
    },
  }),
  "precise prefixes under load": sample({
    plugins: [
      tokens("Qwen/Qwen3-8B"),
      ...["endpoint-notification-source", "kv-cache-utilization-scorer", "active-request-scorer"],
      precise({
        tokenProcessorConfig: { blockSizeTokens: 16 },
        speculativeIndexing: true,
        indexerConfig: indexMetrics(true),
        kvEventsConfig: {
          topicFilter: "kv@",
          concurrency: 32,
          discoverPods: true,
          podDiscoveryConfig: { socketPort: 5557 },
        },
      }),
      prefixScorer("precise-prefix-cache-producer"),
      ["no-hit-lru-scorer", { prefixMatchInfoProducerName: "precise-prefix-cache-producer" }],
    ],
    profiles: {
      default: [
        ["active-request-scorer", 4],
        ["kv-cache-utilization-scorer", 2],
        ["prefix-cache-scorer", 2],
        ["no-hit-lru-scorer", 2],
      ],
    },
    dataLayer: { sources: [source("endpoint-notification-source", "precise-prefix-cache-producer")] },
  }),
  "prefill and decode": sample({
    plugins: [...splitPlugins({ maxPrefixTokensToMatch: 16384, lruCapacityPerServer: 31250 }), ...splitByTokens(16)],
    profiles: splitProfiles(["prefix-cache-scorer", 2], ["queue-scorer", 1]),
  }),
  "prefill and decode, simulated": sample({
    plugins: [
      ...splitPlugins({
        blockSizeTokens: 16,
        autoTune: false,
        maxPrefixTokensToMatch: 16384,
        lruCapacityPerServer: 31250,
      }),
      ...splitByTokens(16),
    ],
    profiles: splitProfiles(["prefix-cache-scorer", 2], ["queue-scorer", 1]),
  }),
  "prefill near decode": sample({
    plugins: [
      ...splitPlugins({ maxPrefixTokensToMatch: 16384, lruCapacityPerServer: 31250 }),
      ...["topology-extractor", "topology-affinity-filter", "topology-affinity-scorer"],
      ...splitByTokens(16),
    ],
    profiles: {
      prefill: [
        ...["prefill-filter", "topology-affinity-filter", "max-score-picker"],
        ["prefix-cache-scorer", 2],
        ["queue-scorer", 1],
        ["topology-affinity-scorer", 1],
      ],
      decode: ["decode-filter", "max-score-picker", ["prefix-cache-scorer", 2], ["queue-scorer", 1]],
    },
  }),
  "prefill and decode by older names": sample({
    plugins: [
      "prefill-header-handler",
      ...splitPlugins({ blockSizeTokens: 16, maxPrefixTokensToMatch: 16384, lruCapacityPerServer: 256 }),
      ["prefix-based-pd-decider", { nonCachedTokens: 16 }],
      handler("pd", { deciderPluginName: "prefix-based-pd-decider" }),
    ],
    profiles: splitProfiles(["prefix-cache-scorer", 2]),
  }),
  "prefill and decode by labels": sample({
    plugins: [
      [
        "label-selector-filter",
        { matchExpressions: [{ key: "role", operator: "In", values: ["prefill"] }] },
        "prefill-pods",
      ],
      [
        "label-selector-filter",
        { matchExpressions: [{ key: "role", operator: "In", values: ["decode"] }] },
        "decode-pods",
      ],
      [
        "approx-prefix-cache-producer",
        { autoTune: false, blockSizeTokens: 5, maxPrefixTokensToMatch: 1280, lruCapacityPerServer: 31250 },
      ],
      ...["prefix-cache-scorer", "max-score-picker"],
      ["prefix-based-pd-decider", { nonCachedTokens: 8, promptTokens: 0 }],
      handler("disagg", {
        profiles: { prefill: "prefill", decode: "decode" },
        deciders: { prefill: "prefix-based-pd-decider" },
      }),
    ],
    profiles: {
      prefill: ["prefill-pods", "max-score-picker", "prefix-cache-scorer"],
      decode: ["decode-pods", "max-score-picker", "prefix-cache-scorer"],
    },
  }),
  "always prefill and decode": sample({
    plugins: [
      ...["disagg-headers-handler", "always-disagg-pd-decider", "prefill-filter", "decode-filter", "max-score-picker"],
      ...["prefix-cache-scorer", "queue-scorer", "kv-cache-utilization-scorer", "active-request-scorer"],
      handler("disagg", { deciders: { prefill: "always-disagg-pd-decider" } }),
    ],
    profiles: {
      prefill: [
        "prefill-filter",
        ["prefix-cache-scorer", 3],
        ["queue-scorer", 2],
        ["kv-cache-utilization-scorer", 2],
        "max-score-picker",
      ],
      decode: ["decode-filter", ["active-request-scorer", 2], ["prefix-cache-scorer", 3], "max-score-picker"],
    },
  }),
  "wide expert parallelism, aware of ranks": sample({
    plugins: [
      ...["token-producer", "prefix-based-pd-decider", "prefill-header-handler", "prefill-filter", "decode-filter"],
      ...["prefix-cache-scorer", "active-request-scorer", "queue-scorer", "pd-profile-handler"],
    ],
    profiles: {
      prefill: ["prefill-filter", ["prefix-cache-scorer", 3], ["active-request-scorer", 2], ["queue-scorer", 2]],
      decode: ["decode-filter", ["active-request-scorer", 1], ["queue-scorer", 1]],
    },
  }),
  "decode alone": sample({
    plugins: [
      ...splitPlugins({ maxPrefixTokensToMatch: 16384, lruCapacityPerServer: 256 }),
      ...["encode-filter", "disagg-profile-handler"],
    ],
    profiles: { decode: ["decode-filter", "max-score-picker", ["prefix-cache-scorer", 2]] },
  }),
  "encode and decode": sample({
    plugins: [
      ...["encode-filter", "decode-filter", "max-score-picker", "always-disagg-multimodal-decider"],
      handler("disagg", { deciders: { encode: "always-disagg-multimodal-decider" } }),
    ],
    profiles: { encode: ["encode-filter"], decode: ["decode-filter"] },
  }),
  "encode, prefill and decode": sample({
    plugins: [
      ...["queue-scorer", "encode-filter", "prefill-filter", "decode-filter", "always-disagg-multimodal-decider"],
      ["prefix-based-pd-decider", { nonCachedTokens: 16 }],
      handler("disagg", {
        deciders: { encode: "always-disagg-multimodal-decider", prefill: "prefix-based-pd-decider" },
      }),
    ],
    profiles: {
      encode: ["encode-filter"],
      prefill: ["prefill-filter", ["queue-scorer", 1]],
      decode: ["decode-filter", ["queue-scorer", 1]],
    },
  }),
  "refusal by chance": sample({
    plugins: [
      ...["probabilistic-admitter", "random-picker"],
      ["utilization-detector", { queueDepthThreshold: 999_999_999, kvCacheUtilThreshold: 1 }],
    ],
    profiles: { default: ["random-picker"] },
    flowControl: { saturationDetector: { pluginRef: "utilization-detector" } },
  }),
  "metrics of GPUs": sample({
    plugins: [
      ["dcgm-data-source", { port: 9400, interval: "1s" }, "gpus"],
      ["dcgm-extractor", {}, "gpu-numbers"],
      [
        "endpoint-attribute-filter",
        {
          attribute: "GPUUtilization",
          producer: "dcgm-extractor",
          onMissing: "Pass",
          fallbackOnEmpty: true,
          algorithm: { type: "threshold", threshold: { operator: "LessThanOrEqual", value: 0.9 } },
        },
        "not-too-busy",
      ],
      [
        "endpoint-attribute-scorer",
        {
          attributeKey: "GPUUtilization",
          producer: "dcgm-extractor",
          algorithm: { type: "linear_lower_is_better", normalization: { fixedRange: { min: 0, max: 1 } } },
        },
        "less-busy",
      ],
      ...["kv-cache-utilization-scorer", "max-score-picker", "single-profile-handler", "decode-filter"],
    ],
    profiles: {
      default: [
        ...["decode-filter", "not-too-busy"],
        ["less-busy", 2],
        ["kv-cache-utilization-scorer", 1],
        "max-score-picker",
      ],
    },
    dataLayer: { sources: [source("gpus", "gpu-numbers")] },
  }),
  "KV events that engines send": sample({
    plugins: [
      tokens("TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
      precise({
        tokenProcessorConfig: { blockSize: 16, hashSeed: "42" },
        kvEventsConfig: { zmqEndpoint: "tcp://0.0.0.0:5557" },
        indexerConfig: indexMetrics(false),
      }),
      prefixScorer("precise-prefix-cache-producer"),
      ...["decode-filter", "max-score-picker", "single-profile-handler"],
    ],
    profiles: { default: ["decode-filter", "max-score-picker", ["prefix-cache-scorer", 10]] },
  }),
  "KV events by the older scorer": sample({
    plugins: [
      tokens("Qwen/Qwen2.5-1.5B-Instruct", "http://vllm-render:8000"),
      [
        "precise-prefix-cache-scorer",
        {
          tokenProcessorConfig: { blockSizeTokens: 16, hashSeed: "42" },
          kvEventsConfig: { zmqEndpoint: "tcp://0.0.0.0:5557" },
          indexerConfig: indexMetrics(false),
        },
      ],
      ...["decode-filter", "max-score-picker", "disagg-profile-handler"],
    ],
    profiles: { decode: ["decode-filter", "max-score-picker", ["precise-prefix-cache-scorer", 10]] },
  }),
  "engines without hits in turn": sample({
    plugins: [
      precise({ tokenProcessorConfig: { blockSizeTokens: 5 } }),
      prefixScorer("precise-prefix-cache-producer"),
      ["no-hit-lru-scorer", { lruSize: 2048 }],
      ...["decode-filter", "max-score-picker", "single-profile-handler"],
    ],
    profiles: {
      default: ["decode-filter", "max-score-picker", ["prefix-cache-scorer", 2], ["no-hit-lru-scorer", 1]],
    },
  }),
  "the recommended baseline": sample({
    plugins: [
      ...["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "no-hit-lru-scorer"],
      ["approx-prefix-cache-producer", { maxPrefixTokensToMatch: 100_000 }],
    ],
    profiles: {
      default: [
        ["queue-scorer", 2],
        ["kv-cache-utilization-scorer", 2],
        ["prefix-cache-scorer", 3],
        ["no-hit-lru-scorer", 2],
      ],
    },
  }),
  "two prefix caches": sample({
    plugins: [
      "token-producer",
      ["approx-prefix-cache-producer", { autoTune: false, lruCapacityPerServer: 1000 }, "in-memory"],
      ...["queue-scorer", "kv-cache-utilization-scorer"],
      ["prefix-cache-scorer", {}, "on-gpu"],
      ["prefix-cache-scorer", { prefixMatchInfoProducerName: "in-memory" }, "in-cpu"],
    ],
    profiles: {
      default: [
        ["queue-scorer", 2],
        ["kv-cache-utilization-scorer", 2],
        ["on-gpu", 1],
        ["in-cpu", 1],
      ],
    },
  }),
  "at random": sample({ plugins: ["random-picker"], profiles: { default: ["random-picker"] } }),
  "at random, unread": sample({
    plugins: ["random-picker", "passthrough-parser"],
    profiles: { default: ["random-picker"] },
    requestHandler: parsers("passthrough-parser"),
  }),
  "no scorer": sample({
    plugins: ["max-score-picker", "single-profile-handler"],
    profiles: { default: ["max-score-picker"] },
  }),
  "fairness among programs": sample({
    plugins: ["program-aware-fairness", "queue-scorer", "max-score-picker", "single-profile-handler"],
    profiles: { default: ["queue-scorer", "max-score-picker"] },
    featureGates: ["flowControl"],
    flowControl: { defaultPriorityBand: { fairnessPolicyRef: "program-aware-fairness" } },
  }),
  "soft ceiling": sample({
    plugins: [
      ...["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "soft-reflective-ceiling-policy"],
    ],
    profiles: {
      default: [
        ["queue-scorer", 2],
        ["kv-cache-utilization-scorer", 2],
        ["prefix-cache-scorer", 3],
      ],
    },
    featureGates: ["flowControl"],
    flowControl: { usageLimitPolicyPluginRef: "soft-reflective-ceiling-policy" },
  }),
  "flow control": sample({
    plugins: [
      ...["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer"],
      ...["round-robin-fairness-policy", "fcfs-ordering-policy"],
      ["concurrency-detector", { maxConcurrency: 132, concurrencyMode: "requests", headroom: 0 }],
    ],
    profiles: {
      default: [
        ["queue-scorer", 2],
        ["kv-cache-utilization-scorer", 2],
        ["prefix-cache-scorer", 3],
      ],
    },
    featureGates: ["flowControl"],
    flowControl: {
      saturationDetector: { pluginRef: "concurrency-detector" },
      ...{ maxBytes: "10Gi", maxRequests: "1k", defaultRequestTTL: "60s" },
      priorityBands: [band(100, "500"), band(0, "200"), band(-10, "50")],
    },
  }),
  "flow control without a gate": sample({
    plugins: ["max-score-picker"],
    profiles: { default: ["max-score-picker"] },
    flowControl: { maxBytes: "1024" },
  }),
  "flow control, two times to wait": sample({
    plugins: ["max-score-picker"],
    profiles: { default: ["max-score-picker"] },
    featureGates: ["flowControl"],
    flowControl: { maxBytes: "1024", defaultRequestTTL: "1m", noEndpointRequestTTL: "5m" },
  }),
  "the older place of the detector": sample({
    plugins: ["max-score-picker"],
    profiles: { default: ["max-score-picker"] },
    featureGates: ["flowControl=false"],
    saturationDetector: { pluginRef: "utilization-detector" },
  }),
  "predicted latency": sample({
    plugins: [
      ...["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "core-metrics-extractor"],
      ["metrics-data-source", { insecureSkipVerify: true, path: "/metrics", scheme: "http" }],
      ["predicted-latency-producer", { streamingMode: true }],
      ["prefix-cache-affinity-filter", { affinityThreshold: 0.99 }, "nearly-all"],
      ["prefix-cache-affinity-filter", { affinityThreshold: 0.8 }, "most"],
      ...["latency-scorer", "weighted-random-picker", "slo-headroom-tier-filter", "latency-slo-admitter"],
    ],
    profiles: {
      default: [
        ...["predicted-latency-producer", "nearly-all", "slo-headroom-tier-filter", "most", "latency-scorer"],
        "weighted-random-picker",
      ],
    },
  }),
  "the chart's predicted latency": sample({
    plugins: [
      ["metrics-data-source", { scheme: "http", path: "/metrics", insecureSkipVerify: true }],
      ["core-metrics-extractor", { defaultEngine: "sglang" }],
      ...["predicted-latency-producer", "latency-scorer", "weighted-random-picker", "slo-headroom-tier-filter"],
      [
        "prefix-cache-affinity-filter",
        { affinityThreshold: 0.99, ttftSource: "latencyPredictor", maxTTFTPenaltyMs: 5000 },
      ],
    ],
    profiles: {
      default: [
        "predicted-latency-producer",
        "prefix-cache-affinity-filter",
        "latency-scorer",
        "weighted-random-picker",
      ],
    },
  }),
  "payloads unread": sample({
    plugins: ["passthrough-parser", "active-request-scorer", "session-affinity-scorer"],
    profiles: {
      default: [
        ["active-request-scorer", 1],
        ["session-affinity-scorer", 1],
      ],
    },
    requestHandler: parsers("passthrough-parser"),
  }),
  "sessions by token": sample({
    plugins: ["openai-parser", "queue-scorer", "session-affinity-filter"],
    profiles: { default: ["queue-scorer", "session-affinity-filter"] },
    requestHandler: parsers("openai-parser"),
  }),
  "sessions by name": sample({
    plugins: [
      ...["openai-parser", "agent-identity"],
      [
        "session-affinity-filter",
        {
          strategy: "session_id",
          sessionIdConfig: { sources: [{ header: "x-session-id" }, { attribute: "agent-identity" }] },
        },
      ],
    ],
    profiles: { default: ["session-affinity-filter"] },
    requestHandler: parsers("openai-parser"),
  }),
  "vLLM's own API": sample({
    plugins: ["vllmhttp-parser", "decode-filter", "max-score-picker", "single-profile-handler"],
    profiles: { default: ["decode-filter", "max-score-picker"] },
    requestHandler: parsers("vllmhttp-parser"),
  }),
  "gRPC engines": sample({
    plugins: [
      ["max-score-picker", {}, "best"],
      ["vllmgrpc-parser", {}, "grpc"],
    ],
    profiles: { default: ["best"] },
    requestHandler: parsers("grpc"),
  }),
  "Vertex AI": sample({ plugins: ["vertexai-parser"], profiles: {}, requestHandler: parsers("vertexai-parser") }),
  "models of engines": sample({
    plugins: [
      ["models-data-source", { scheme: "https", insecureSkipVerify: false, interval: "5s" }, "models"],
      ["models-data-extractor", {}, "names-of-models"],
    ],
    profiles: {},
    dataLayer: { sources: [source("models", "names-of-models")] },
  }),
  "cost of a request": sample({
    plugins: [
      "openai-parser",
      [
        "request-attribute-reporter",
        { attributes: [{ key: { namespace: "envoy.lb", name: "cost" }, expression: "usage.completion_tokens" }] },
        "costs",
      ],
    ],
    profiles: { default: ["openai-parser", "costs"] },
    requestHandler: parsers("openai-parser"),
  }),
  "engines from a file": sample({
    plugins: [
      ["file-discovery", { path: "/etc/epp/endpoints.yaml", watchFile: true }],
      ...["random-picker", "single-profile-handler", "metrics-data-source", "core-metrics-extractor"],
    ],
    profiles: { default: ["random-picker"] },
    dataLayer: {
      injectDefaults: false,
      discovery: { pluginRef: "file-discovery" },
      sources: [source("metrics-data-source", "core-metrics-extractor")],
    },
  }),
  "clusters as endpoints": sample({
    plugins: [
      ["multicluster-file-discovery", { path: "/etc/epp/clusters.yaml" }, "clusters"],
      ["multicluster-metrics-data-source", { scheme: "https", caCertPath: "/etc/epp/tls/ca.crt" }, "numbers"],
      ["multicluster-metrics-extractor", {}, "numbers-of-clusters"],
      ["multicluster-session-affinity-filter", {}, "sessions"],
      ["multicluster-kv-cache-utilization-scorer", {}, "kv"],
      ["multicluster-queue-scorer", {}, "queue"],
      ...["max-score-picker", "single-profile-handler"],
    ],
    profiles: {},
    dataLayer: { discovery: { pluginRef: "clusters" }, sources: [source("numbers", "numbers-of-clusters")] },
  }),
  "four scorers": sample({
    plugins: [
      ...[
        "queue-scorer",
        "kv-cache-utilization-scorer",
        "prefix-cache-scorer",
        "lora-affinity-scorer",
        "openai-parser",
      ],
    ],
    profiles: {
      default: ["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "lora-affinity-scorer"],
    },
    requestHandler: parsers("openai-parser"),
  }),
  "a scorer of one's own": sample({
    plugins: ["queue-scorer", ["custom-scorer", { threshold: 64 }]],
    profiles: { default: ["queue-scorer", "custom-scorer"] },
  }),
  "nothing but a scorer of one's own": sample({
    plugins: [["custom-scorer", { "custom-threshold": 64 }]],
    profiles: { default: ["custom-scorer"] },
  }),
};

type WrittenPlugin = string | readonly [type: string, parameters?: object, name?: string];

interface Sample {
  readonly plugins: readonly WrittenPlugin[];
  /** A name, or a name with its weight. */
  readonly profiles: Readonly<Record<string, readonly (string | readonly [name: string, weight: number])[]>>;
  readonly [section: string]: unknown;
}

/** JSON is YAML; one plugin or profile a line. */
export function sample({ plugins, profiles, ...sections }: Sample): string {
  const lines = (values: readonly object[]): string => values.map((value) => `- ${JSON.stringify(value)}\n`).join("");
  const written = plugins.map((plugin) => {
    const [type, parameters, name] = typeof plugin === "string" ? [plugin] : plugin;
    return { type, ...(name === undefined ? {} : { name }), ...(parameters === undefined ? {} : { parameters }) };
  });
  const named = Object.entries(profiles).map(([name, members]) => ({
    name,
    plugins: members.map((member) => {
      const [pluginRef, weight] = typeof member === "string" ? [member] : member;
      return { pluginRef, ...(weight === undefined ? {} : { weight }) };
    }),
  }));
  return [
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n",
    `plugins:\n${lines(written)}`,
    named.length === 0 ? "" : `schedulingProfiles:\n${lines(named)}`,
    ...Object.entries(sections).map(([key, value]) => `${key}: ${JSON.stringify(value)}\n`),
  ].join("");
}

function tokens(modelName: string, url = "http://localhost:8000"): WrittenPlugin {
  return ["token-producer", { modelName, vllm: { url } }];
}

function precise(parameters: object): WrittenPlugin {
  return ["precise-prefix-cache-producer", parameters];
}

function prefixScorer(prefixMatchInfoProducerName: string): WrittenPlugin {
  return ["prefix-cache-scorer", { prefixMatchInfoProducerName }];
}

function handler(kind: string, parameters: object = {}): WrittenPlugin {
  return [`${kind}-profile-handler`, parameters];
}

function source(pluginRef: string, ...extractors: readonly string[]): object {
  return { pluginRef, extractors: extractors.map((extractor) => ({ pluginRef: extractor })) };
}

function parsers(...names: readonly string[]): object {
  return { parsers: names.map((pluginRef) => ({ pluginRef })) };
}

function indexMetrics(enableMetrics: boolean): object {
  return { kvBlockIndexConfig: { enableMetrics, metricsLoggingInterval: 60_000_000_000 } };
}

function band(priority: number, maxRequests: string): object {
  const policies = { fairnessPolicyRef: "round-robin-fairness-policy", orderingPolicyRef: "fcfs-ordering-policy" };
  return { priority, maxRequests, ...policies };
}

function splitPlugins(prefixes: object): readonly WrittenPlugin[] {
  return [
    ["approx-prefix-cache-producer", prefixes],
    ...["prefix-cache-scorer", "queue-scorer", "prefill-filter", "decode-filter", "max-score-picker"],
  ];
}

function splitByTokens(nonCachedTokens: number): readonly WrittenPlugin[] {
  return [
    ["prefix-based-pd-decider", { nonCachedTokens }],
    handler("disagg", { deciders: { prefill: "prefix-based-pd-decider" } }),
  ];
}

function splitProfiles(...scorers: readonly (readonly [string, number])[]): Sample["profiles"] {
  return {
    prefill: ["prefill-filter", "max-score-picker", ...scorers],
    decode: ["decode-filter", "max-score-picker", ...scorers],
  };
}
