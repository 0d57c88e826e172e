/** Where a plugin takes part in llm-d's endpoint picker. Only the first four stand in scheduling profiles. */
export type PluginKind =
  | "scorer"
  | "filter"
  | "picker"
  | "profile handler"
  | "decider"
  | "producer"
  | "data layer"
  | "parser"
  | "flow control"
  | "saturation detector"
  | "admission";

/** What becomes of a parameter. */
export type ParameterRule =
  /** The translation of another thing reads it. */
  | { readonly rule: "read" }
  /** Nothing has to be set for it. */
  | { readonly rule: "same"; readonly ours: string }
  /** A number that is an option of a policy. */
  | { readonly rule: "option"; readonly option: string; readonly isWhole?: boolean }
  /** A number that is a setting, by its path. */
  | { readonly rule: "setting"; readonly path: string; readonly min: number; readonly max: number }
  /** A plain text that is a setting. */
  | { readonly rule: "text"; readonly path: string }
  /** Nothing corresponds to it. It matters only if it is not `unless`, which is its default. */
  | { readonly rule: "missing"; readonly why: string; readonly instead: string; readonly unless?: unknown }
  | { readonly rule: "section"; readonly parameters: ParameterRules };

export type ParameterRules = Readonly<Record<string, ParameterRule>>;

/** What one of their plugins is here. */
export interface PluginRule {
  readonly kind: PluginKind;
  /** Our counterpart in Markdown, or words for what needs no setting. Absent: there is none. */
  readonly ours?: string;
  /** What is not the same, or why there is none. Absent: it is the same. */
  readonly why?: string;
  /** What to do instead. */
  readonly instead?: string;
  /** The policy of ours that does what it does; beside another policy it does nothing. */
  readonly policy?: "affinity_filter" | "predicted_latency" | "random" | "sticky";
  /** The option of `epp_weighted` that takes a scorer's weight, and the factor between the two. */
  readonly weight?: { readonly option: string; readonly factor: number };
  readonly parameters?: ParameterRules;
}

const read: ParameterRule = { rule: "read" };
const same = (ours: string): ParameterRule => ({ rule: "same", ours });
const option = (name: string): ParameterRule => ({ rule: "option", option: name });
const wholeOption = (name: string): ParameterRule => ({ rule: "option", option: name, isWhole: true });
const setting = (path: string, min: number, max: number): ParameterRule => ({ rule: "setting", path, min, max });
const text = (path: string): ParameterRule => ({ rule: "text", path });
const section = (parameters: ParameterRules): ParameterRule => ({ rule: "section", parameters });
const missing = (why: string, instead: string, unless?: unknown): ParameterRule => ({
  rule: "missing",
  why,
  instead,
  ...(unless === undefined ? {} : { unless }),
});

const builtIn = "built-in";
const nothing = "nothing to set";

const scorer = (option: string, more: Omit<PluginRule, "kind"> = {}, factor = 1): PluginRule => ({
  kind: "scorer",
  ours: `\`policy.${option}\``,
  weight: { option, factor },
  ...more,
});

const maxPicked = { maxNumOfEndpoints: read } as const;

const prefixMatch = { prefixMatchInfoProducerName: read } as const;
const inFlight = { inFlightLoadProducerName: read } as const;
const predicted = { latencyPredictionInfoProducerName: read } as const;

const blockSize = setting("prefix.block-size", 1, 1_024);
const hashing = same("engines' own hashes need not be known");

const preciseParameters: ParameterRules = {
  tokenProcessorConfig: section({
    blockSize,
    blockSizeTokens: blockSize,
    hashSeed: hashing,
    hashAlgorithm: hashing,
  }),
  kvEventsConfig: section({
    zmqEndpoint: text("kv-events.listen"),
    topicFilter: same("the topics of every engine's own feed"),
    concurrency: same(builtIn),
    engineType: same("the kind of engine is seen from its events"),
    discoverPods: same("`kv-events.mode: auto`: engines are asked where they publish"),
    podDiscoveryConfig: section({
      socketPort: same("`kv-events.mode: auto`, or `kv-events-port` of a source under `discovery`"),
      replaySocketPort: same("`kv-events.mode: auto`, or `kv-replay-port` of a source under `discovery`"),
      podLabelSelector: same("the sources under `discovery`"),
      podNamespace: same("the sources under `discovery`"),
    }),
  }),
  indexerConfig: section({
    kvBlockIndexConfig: section({
      enableMetrics: same("`/metrics`"),
      metricsLoggingInterval: same("`/metrics`"),
      inMemoryConfig: same("the index holds what engines hold"),
      costAwareMemoryConfig: same("the index holds what engines hold"),
      redisConfig: missing(
        "routers share one index themselves",
        "`mesh`, or `mesh.redis-url` where links are not wanted",
      ),
    }),
    kvCacheBackendConfigs: missing(
      "what a block in slower memory is worth has other names",
      "`policy.cpu-credit`, `policy.disk-credit`, `policy.external-credit`",
    ),
    tokenizersPoolConfig: missing("prompts are tokenized by other settings", "`tokenizers`"),
  }),
  speculativeIndexing: same("a prompt counts as cached from when it is sent"),
  speculativeTTL: missing("how long that lasts has another name", "`prefix.placement-ttl`"),
};

const approximateParameters: ParameterRules = {
  autoTune: same("the size of caches is read from engines' metrics"),
  blockSizeTokens: blockSize,
  blockSize: missing("blocks are counted in tokens, not in characters", "`prefix.block-size`", 0),
  maxPrefixTokensToMatch: read,
  maxPrefixBlocksToMatch: read,
  lruCapacityPerServer: read,
};

const sessionParameters: ParameterRules = {
  strategy: read,
  encodedEndpointHeaderConfig: read,
  sessionIdConfig: section({
    sources: read,
    evictionTtlSeconds: option("max-idle-seconds"),
    evictionSweepSeconds: same(builtIn),
  }),
  profileName: read,
};

const session = (kind: "scorer" | "filter"): PluginRule => ({
  kind,
  ours: "`policy: sticky`, `session-key`",
  policy: "sticky",
  why:
    kind === "filter"
      ? "a session leaves an engine that has far too many requests, and the router writes no token into answers"
      : "the session binds, where theirs only counts, and the router writes no token into answers",
  parameters: sessionParameters,
});

const clusters = (kind: PluginKind, parameters: ParameterRules = {}): PluginRule => ({
  kind,
  why: "it chooses among clusters, and a router here chooses among engines",
  instead: "a fleet of routers in each cluster, behind what chooses the cluster",
  parameters,
});

const labels: PluginRule = {
  kind: "filter",
  why: "labels choose engines when these are found, not for each request",
  instead: "`discovery.pods[].selector`, and `engines[].role` for prefill and decode",
  parameters: {
    label: read,
    validValues: read,
    allowsNoLabel: read,
    matchLabels: read,
    matchExpressions: read,
  },
};

const role = { kind: "filter", ours: "`engines[].role`, or the pods' label `llm-d.ai/role`" } as const;

const places = (kind: "filter" | "scorer" | "data layer", parameters: ParameterRules): PluginRule => ({
  kind,
  why: "hosts, racks and zones of engines are not known",
  instead: "a fleet of routers for each zone",
  parameters,
});

const attribute = (kind: "filter" | "scorer"): PluginRule => ({
  kind,
  why: "only the metrics of load are read from engines",
  instead: "the weights of `epp_weighted` for queues, KV blocks and requests in flight",
  parameters: {
    attribute: read,
    attributeKey: read,
    producer: read,
    onMissing: read,
    fallbackOnEmpty: read,
    algorithm: read,
  },
});

const gpuMetrics: PluginRule = {
  kind: "data layer",
  why: "metrics of GPUs are not read",
  instead: "the weights of `epp_weighted` for queues, KV blocks and requests in flight",
  parameters: { scheme: read, path: read, port: read, insecureSkipVerify: read, useNodeAddress: read, interval: read },
};

const imageCaches = (kind: "scorer" | "producer", parameters: ParameterRules): PluginRule => ({
  kind,
  why: "caches of image embeddings are not followed",
  instead: "the weight of `prefix-cache-scorer`, for prompts that begin alike",
  parameters,
});

const tokens: PluginRule = {
  kind: "producer",
  ours: "`tokenizers`",
  why: "an engine's `/tokenize` is asked (`mode: engine`), which `mode: local` with `path` makes unnecessary; estimates are `mode: bytes`",
  parameters: { modelName: read, vllm: read, estimate: read, udsTokenizerConfig: read },
};

const profilesOf = {
  decodeProfile: read,
  prefillProfile: read,
  encodeProfile: read,
  deciderPluginName: read,
} as const;

const disaggregated: PluginRule = {
  kind: "profile handler",
  ours: "`disaggregation`, `engines[].role`, `kv-transfer` of engines",
  why: "one policy chooses both engines",
  instead: "give engines `kv-transfer: llm-d-sidecar` where they are listed or found",
  parameters: {
    ...profilesOf,
    profiles: read,
    deciders: read,
    prefillDeciderPluginName: read,
    encodeDeciderPluginName: read,
    stageOrder: missing("both engines are chosen together", nothing, "decode-first"),
    primaryPort: same("`ranks` of engines"),
    prefixPluginType: read,
    prefixPluginName: read,
    ...prefixMatch,
  },
};

const encoders: PluginRule = {
  kind: "decider",
  why: "images are not encoded by engines of their own",
  instead: "engines that encode images themselves",
};

const disaggregationHeaders: PluginRule = {
  kind: "profile handler",
  ours: builtIn,
  parameters: { prefillProfile: read, encodeProfile: read },
};

const eviction: PluginRule = {
  kind: "flow control",
  why: "a request that runs is not ended for another one",
  instead: "`admission.engine-priority`: engines preempt by class",
};

const ceiling = (parameters: ParameterRules): PluginRule => ({
  kind: "flow control",
  why: "how full engines may be for a class is a number of tokens",
  instead: "a lower `max-pending-tokens` for lower `admission.classes`",
  parameters,
});

const grpcParser: PluginRule = {
  kind: "parser",
  why: "engines are reached over HTTP",
  instead: "engines' OpenAI API",
};

const learned = same("learned in the router from answers");

/**
 * Every plugin that llm-d's router of 2026-08-21 (commit ebab687) registers. MIGRATION's table and the translation are
 * made from it.
 */
export const llmdPlugins: Readonly<Record<string, PluginRule>> = {
  // Scorers
  "queue-scorer": scorer("queue-weight"),
  "kv-cache-utilization-scorer": scorer("kv-cache-utilization-weight"),
  "prefix-cache-scorer": scorer("prefix-cache-weight", {
    parameters: {
      ...prefixMatch,
      matchLengthWeight: missing("the cached share of the prompt counts, not its length", nothing, 0),
      matchLengthScaleTokens: read,
    },
  }),
  "precise-prefix-cache-scorer": scorer("prefix-cache-weight", {
    ours: "`policy.prefix-cache-weight`, `tokenizers`, `kv-events`",
    parameters: preciseParameters,
  }),
  "active-request-scorer": scorer("active-request-weight", {
    parameters: {
      requestTimeout: same("not used there either"),
      idleThreshold: missing("only an engine without requests has the full score", nothing, 0),
      maxBusyScore: missing("there is no gap between idle and busy engines", nothing, 1),
      ...inFlight,
    },
  }),
  "token-load-scorer": scorer("token-load-weight", {
    parameters: { queueThresholdTokens: wholeOption("token-load-threshold"), ...inFlight },
  }),
  "no-hit-lru-scorer": scorer("no-hit-lru-weight", {
    parameters: {
      lruSize: same("all engines are in the order"),
      prefixPluginType: read,
      prefixPluginName: read,
      ...prefixMatch,
    },
  }),
  "lora-affinity-scorer": scorer("lora-affinity-weight"),
  "running-requests-size-scorer": scorer("active-request-weight", {
    why: "requests are counted by the routers, not read from engines' metrics",
  }),
  "load-aware-scorer": scorer(
    "queue-weight",
    {
      why: "at half the weight, its highest score being 0.5; queues are compared with the longest one, not with a threshold",
      parameters: { threshold: read },
    },
    0.5,
  ),
  "latency-scorer": {
    kind: "scorer",
    ours: "`policy: predicted_latency`",
    policy: "predicted_latency",
    why: "latencies are learned in the router, without servers for training and prediction; other scorers are not added",
    parameters: {
      ttftWeight: missing("the weights of latencies are computed", "`policy.objective`"),
      tpotWeight: missing("the weights of latencies are computed", "`policy.objective`"),
      headroomSelectionStrategy: missing("deadlines decide in the queue, not among engines", "`admission`"),
      compositeKVWeight: learned,
      compositeQueueWeight: learned,
      compositePrefixWeight: learned,
      ...predicted,
      ...prefixMatch,
    },
  },
  "session-affinity-scorer": session("scorer"),
  "context-length-aware": {
    kind: "scorer",
    why: "engines have no range of prompt lengths",
    instead:
      "`policy: predicted_latency`, which counts how many answers a long prompt holds up; or a model name for each range",
    parameters: { label: read, enableFiltering: read },
  },
  "header-label-affinity-scorer": {
    kind: "scorer",
    why: "labels of engines are not compared with headers",
    instead: "a model name (`models.aliases`) for each label",
    parameters: { headerName: read, labelKey: read },
  },
  "endpoint-attribute-scorer": attribute("scorer"),
  "mm-embeddings-cache-scorer": imageCaches("scorer", { producerName: read }),
  "topology-affinity-scorer": places("scorer", { topologyProducerName: read }),

  // Filters
  "decode-filter": role,
  "prefill-filter": role,
  "encode-filter": { ...encoders, kind: "filter" },
  "label-selector-filter": labels,
  "by-label-selector": labels,
  "by-label": labels,
  "prefix-cache-affinity-filter": {
    kind: "filter",
    ours: "`policy: affinity_filter`",
    policy: "affinity_filter",
    why: "it is followed by the token load; other scorers are not added",
    parameters: {
      affinityThreshold: option("affinity-threshold"),
      maxTTFTPenaltyMs: wholeOption("max-ttft-penalty-ms"),
      peakPrefillThroughput: option("prefill-tokens-per-second"),
      explorationProbability: missing("the filter is never skipped at random", nothing, 0),
      ttftSource: read,
      ...prefixMatch,
      ...predicted,
      ...inFlight,
    },
  },
  "slo-headroom-tier-filter": {
    kind: "filter",
    ours: "`policy: predicted_latency`",
    policy: "predicted_latency",
    why: "deadlines decide in the queue, not among engines",
    instead: "`x-espalier-deadline-ms`, or `admission.classes[].target`",
    parameters: { epsilonExploreNeg: missing("engines beyond the deadline are not explored", nothing), ...predicted },
  },
  "session-affinity-filter": session("filter"),
  "endpoint-attribute-filter": attribute("filter"),
  "topology-affinity-filter": places("filter", { minAffinity: read, topologyProducerName: read }),
  "utilization-filter": {
    kind: "filter",
    why: "engines that are full are left out by admission",
    instead: "`admission.max-waiting`, `admission.max-kv-use`",
    parameters: { conditions: read, fallbackOnEmpty: read, ...inFlight },
  },
  "disaggregatedset-rollout-screener": {
    kind: "filter",
    why: "revisions of a rollout are not told apart",
    instead: "a model name for each revision, and `models.splits`",
    parameters: { scope: read, headerSelectors: read, revisionGating: read },
  },
  "header-based-testing-filter": {
    kind: "filter",
    why: "it is for tests of theirs",
    instead: nothing,
  },

  // Pickers
  "max-score-picker": {
    kind: "picker",
    ours: "the best engine, equals by weight; `endpoint-picker.fallbacks`",
    parameters: maxPicked,
  },
  "random-picker": { kind: "picker", ours: "`policy: random`", policy: "random", parameters: maxPicked },
  "weighted-random-picker": {
    kind: "picker",
    ours: "the best engine, equals by weight",
    why: "scores are not chances",
    parameters: maxPicked,
  },

  // Profile handlers and deciders
  "single-profile-handler": { kind: "profile handler", ours: builtIn },
  "disagg-profile-handler": disaggregated,
  "pd-profile-handler": disaggregated,
  "disagg-headers-handler": disaggregationHeaders,
  "prefill-header-handler": disaggregationHeaders,
  "data-parallel-profile-handler": {
    kind: "profile handler",
    ours: "`ranks` of engines, or an engine for each port",
    parameters: { primaryPort: same("`ranks` of engines") },
  },
  "header-profile-handler": {
    kind: "profile handler",
    why: "a header does not choose the policy",
    instead: "`pools`, by model",
    parameters: { headerName: read, defaultProfile: read },
  },
  "prefix-based-pd-decider": {
    kind: "decider",
    ours: "`disaggregation.threshold-tokens`",
    parameters: {
      nonCachedTokens: read,
      promptTokens: missing("only the tokens that no cache holds count", nothing, 0),
    },
  },
  "always-disagg-pd-decider": { kind: "decider", ours: "`disaggregation.threshold-tokens: 1`" },
  "always-disagg-multimodal-decider": encoders,

  // Producers of data about requests
  "approx-prefix-cache-producer": {
    kind: "producer",
    ours: "`policy.max-prefix-tokens`, `prefix.block-size`, `prefix.placement-tokens`",
    parameters: approximateParameters,
  },
  "precise-prefix-cache-producer": {
    kind: "producer",
    ours: "`tokenizers`, `kv-events`, `prefix.block-size`",
    parameters: preciseParameters,
  },
  "burst-prefix-cache-producer": {
    kind: "producer",
    ours: "a prompt counts as cached from when it is sent",
    why: "requests are placed one by one, without a wait for a batch",
    parameters: {
      windowDurationMs: read,
      maxPerReplica: read,
      blockSizeTokens: blockSize,
      maxPrefixTokensToMatch: read,
      minColocateBlocks: read,
      maxBatchSize: read,
      balanceBy: read,
    },
  },
  "token-producer": tokens,
  tokenizer: tokens,
  "inflight-load-producer": {
    kind: "producer",
    ours: builtIn,
    parameters: {
      addEstimatedOutputTokens: learned,
      outputRatio: learned,
      maxEstimatedOutputTokens: learned,
      ...prefixMatch,
      syncCrossReplicaState: same("`mesh`"),
    },
  },
  "predicted-latency-producer": {
    kind: "producer",
    ours: "`policy: predicted_latency`",
    policy: "predicted_latency",
    why: "latencies are learned in the router, without servers for training and prediction",
    parameters: {
      samplingMean: learned,
      maxDecodeTokenSamplesForPrediction: learned,
      sloBufferFactor: learned,
      contextTTL: learned,
      streamingMode: learned,
      endpointRoleLabel: learned,
      predictInProduce: learned,
      useEncoderCacheFeatures: learned,
      encoderCacheMatchInfoProducerName: learned,
      ...prefixMatch,
      ...inFlight,
    },
  },
  "session-id-producer": {
    kind: "producer",
    ours: "`session-key`",
    parameters: {
      headerName: read,
      cookieName: missing("cookies hold no session key", "`session-key: [header:NAME]`"),
    },
  },
  "mm-embeddings-cache-producer": imageCaches("producer", { cacheSizeInMBPerServer: read, cacheSizeInMB: read }),
  "p2p-source-producer": {
    kind: "producer",
    why: "engines are not told to fetch a prefix from another engine",
    instead: "a KV pool outside the engines: `kv-pools`",
    parameters: { ...prefixMatch, minCachedTokenDelta: read, prefillProfileName: read },
  },
  "agent-identity": {
    kind: "producer",
    ours: "`session-key`, where a session plugin reads it",
    why: "it is no tenant: tenants come from API keys or `x-espalier-tenant`",
    parameters: { additionalSessionHeaders: read },
  },
  "request-attribute-reporter": {
    kind: "producer",
    why: "usage is not written into the gateway's metadata",
    instead: "`espalier_tokens_total` in `/metrics`",
    parameters: { attributes: read },
  },
  "destination-endpoint-served-verifier": {
    kind: "producer",
    why: "it is for tests of theirs",
    instead: nothing,
  },

  // Data layer
  "metrics-data-source": {
    kind: "data layer",
    ours: "`scrape`, `engine-tls`",
    parameters: {
      scheme: read,
      path: text("scrape.path"),
      port: missing("metrics are read at the engine's own port", "an engine that serves both at one port"),
      interval: read,
      insecureSkipVerify: read,
      caCertPath: text("engine-tls.ca-file"),
      clientCertPath: text("engine-tls.cert-file"),
      clientKeyPath: text("engine-tls.key-file"),
    },
  },
  "core-metrics-extractor": {
    kind: "data layer",
    ours: "the metrics of vLLM, SGLang and TensorRT-LLM are known",
    parameters: {
      engineLabelKey: same("the kind of engine is seen from its metrics"),
      defaultEngine: same("the kind of engine is seen from its metrics"),
      engineConfigs: missing("names of metrics cannot be set", "the names that vLLM, SGLang and TensorRT-LLM use"),
    },
  },
  "models-data-source": {
    kind: "data layer",
    ours: builtIn,
    parameters: {
      scheme: read,
      path: same("`/v1/models`"),
      insecureSkipVerify: read,
      caCertPath: text("engine-tls.ca-file"),
      clientCertPath: text("engine-tls.cert-file"),
      clientKeyPath: text("engine-tls.key-file"),
      interval: same("models are asked for with the health checks"),
    },
  },
  "models-data-extractor": { kind: "data layer", ours: builtIn },
  "endpoint-notification-source": { kind: "data layer", ours: builtIn },
  "k8s-notification-source": {
    kind: "data layer",
    ours: builtIn,
    parameters: { group: read, version: read, kind: read },
  },
  "file-discovery": {
    kind: "data layer",
    ours: "`engines-file`",
    why: "the file is a list of engines by URL",
    instead: "write `- url: http://ADDRESS:PORT` for each endpoint, with its `labels`",
    parameters: { path: text("engines-file"), watchFile: same("the file is watched") },
  },
  "dcgm-data-source": gpuMetrics,
  "dcgm-extractor": gpuMetrics,
  "topology-extractor": places("data layer", { hostname: read, rack: read, zone: read, region: read }),

  // Parsers
  "openai-parser": { kind: "parser", ours: builtIn },
  "anthropic-parser": { kind: "parser", ours: builtIn },
  "sglanghttp-parser": { kind: "parser", ours: builtIn },
  "vllmhttp-parser": {
    kind: "parser",
    ours: "`forward-paths: [/inference/v1/generate]`",
    why: "the prompt is not looked at",
  },
  "passthrough-parser": {
    kind: "parser",
    ours: "`forward-paths`",
    why: "further paths are forwarded only if they are listed",
    instead: "list them in `forward-paths`",
  },
  "vllmgrpc-parser": grpcParser,
  "vertexai-parser": grpcParser,

  // Flow control
  "fcfs-ordering-policy": { kind: "flow control", ours: "`admission.classes[].order: fcfs`" },
  "edf-ordering-policy": {
    kind: "flow control",
    ours: "`admission.classes[].order: edf`",
    why: "a deadline is for the first token, and comes with the request",
  },
  "slo-deadline-ordering-policy": {
    kind: "flow control",
    ours: "`admission.classes[].order: edf`",
    why: "a deadline is for the first token, and comes with the request",
  },
  "round-robin-fairness-policy": {
    kind: "flow control",
    ours: builtIn,
    why: "tenants take turns by tokens, not by requests",
  },
  "global-strict-fairness-policy": {
    kind: "flow control",
    ours: builtIn,
    why: "tenants of a class have equal shares; only the order within one is as before",
  },
  "program-aware-fairness": {
    kind: "flow control",
    ours: builtIn,
    why: "tenants have equal shares of the tokens, whatever they have had before",
    parameters: {
      strategy: read,
      evictionTtlSeconds: read,
      evictionSweepSeconds: read,
      lasWeightService: read,
      lasWeightHeadWait: read,
      lasHalfLifeSeconds: read,
    },
  },
  "static-usage-limit-policy": {
    kind: "flow control",
    ours: builtIn,
    parameters: {
      threshold: missing("engines are filled up to their limits", "lower limits under `admission`", 1),
    },
  },
  "priority-holdback-policy": ceiling({ shape: read, domain: read, minCeiling: read, maxCeiling: read }),
  "soft-reflective-ceiling-policy": ceiling({}),
  "sheddable-eviction-filter": eviction,
  "priority-then-time-eviction-order-policy": eviction,

  // Saturation and admission
  "utilization-detector": {
    kind: "saturation detector",
    ours: "`admission.max-waiting`, `admission.max-kv-use`",
    why: "each engine has its limits; theirs are for the mean of the pool",
    parameters: {
      queueDepthThreshold: read,
      kvCacheUtilThreshold: read,
      metricsStalenessThreshold: same("between two scrapes the routers' own accounting counts"),
      headroom: missing("there is one limit, not one for the pool and one for an engine", nothing, 0),
    },
  },
  "concurrency-detector": {
    kind: "saturation detector",
    ours: "`admission.classes[].max-pending-tokens`",
    why: "only the tokens of prompts count, and only until their answers begin",
    parameters: {
      maxConcurrency: read,
      maxTokenConcurrency: read,
      concurrencyMode: read,
      headroom: missing("there is one limit, not one for the pool and one for an engine", nothing, 0),
      ...inFlight,
    },
  },
  "latency-slo-admitter": {
    kind: "admission",
    ours: "`admission.classes[].on-miss: reject`",
    why: "only the time to the first token has a deadline",
    parameters: predicted,
  },
  "probabilistic-admitter": {
    kind: "admission",
    why: "requests are not refused by chance",
    instead: "`admission`: they wait, by class, and the lowest class is dropped first",
    parameters: { queueDepthThreshold: read, kvCacheUtilThreshold: read, power: read, k: read },
  },

  // Clusters as endpoints
  "multicluster-queue-scorer": clusters("scorer"),
  "multicluster-kv-cache-utilization-scorer": clusters("scorer"),
  "multicluster-prefix-cache-scorer": clusters("scorer", {
    ...prefixMatch,
    matchLengthWeight: read,
    matchLengthScaleTokens: read,
  }),
  "multicluster-session-affinity-filter": clusters("filter", sessionParameters),
  "multicluster-approx-prefix-cache-producer": clusters("producer", {
    autoTune: read,
    blockSizeTokens: read,
    blockSize: read,
    maxPrefixTokensToMatch: read,
    maxPrefixBlocksToMatch: read,
    lruCapacityPerServer: read,
  }),
  "multicluster-metrics-data-source": clusters("data layer", {
    scheme: read,
    path: read,
    port: read,
    interval: read,
    insecureSkipVerify: read,
    caCertPath: read,
    clientCertPath: read,
    clientKeyPath: read,
  }),
  "multicluster-metrics-extractor": clusters("data layer", { kvCacheUtilizationMetric: read, queueSizeMetric: read }),
  "multicluster-file-discovery": clusters("data layer", { path: read, watchFile: read }),
};
