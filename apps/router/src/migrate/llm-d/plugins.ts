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

/** Parameters that the translation of another thing reads. */
const reads = (...names: readonly string[]): ParameterRules => Object.fromEntries(names.map((name) => [name, read]));

/** A plugin with a counterpart here, in Markdown. */
const here = (kind: PluginKind, ours: string, more: Omit<PluginRule, "kind" | "ours"> = {}): PluginRule => ({
  ...{ kind, ours },
  ...more,
});

/** A plugin without one. Its parameters are nothing here either. */
const absent = (kind: PluginKind, why: string, instead: string): PluginRule => ({ kind, why, instead });

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

const blockCharacters = missing("blocks are counted in tokens, not in characters", "`prefix.block-size`", 0);

const approximateParameters: ParameterRules = {
  autoTune: same("the size of caches is read from engines' metrics"),
  blockSizeTokens: blockSize,
  blockSize: blockCharacters,
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

const session = (kind: "scorer" | "filter"): PluginRule =>
  here(kind, "`policy: sticky`, `session-key`", {
    policy: "sticky",
    why:
      kind === "filter"
        ? "a session leaves an engine that has far too many requests, and the router writes no token into answers"
        : "the session binds, where theirs only counts, and the router writes no token into answers",
    parameters: sessionParameters,
  });

const clusters = (kind: PluginKind): PluginRule =>
  absent(
    kind,
    "it chooses among clusters, and a router here chooses among engines",
    "a fleet of routers in each cluster, behind what chooses the cluster",
  );

const labels: PluginRule = absent(
  "filter",
  "labels choose engines when these are found, not for each request",
  "`discovery.pods[].selector`, and `engines[].role` for prefill and decode",
);

const role = here("filter", "`engines[].role`, or the pods' label `llm-d.ai/role`");

const places = (kind: PluginKind): PluginRule =>
  absent(
    kind,
    "regions of engines are known; hosts, racks and zones are not",
    "`engines[].region`, or the label `topology.kubernetes.io/region`, with `mesh.region` of each router",
  );

const attribute = (kind: PluginKind): PluginRule =>
  absent(
    kind,
    "only the metrics of load are read from engines",
    "the weights of `epp_weighted` for queues, KV blocks and requests in flight",
  );

const gpuMetrics: PluginRule = absent(
  "data layer",
  "metrics of GPUs are not read",
  "the weights of `epp_weighted` for queues, KV blocks and requests in flight",
);

const imageCaches = (kind: PluginKind): PluginRule =>
  absent(
    kind,
    "caches of image embeddings are not followed",
    "the weight of `prefix-cache-scorer`, for prompts that begin alike",
  );

const tokens: PluginRule = here("producer", "`tokenizers`", {
  why: "an engine's `/tokenize` is asked (`mode: engine`), which `mode: local` with `path` makes unnecessary; estimates are `mode: bytes`",
  parameters: reads("modelName", "vllm", "estimate", "udsTokenizerConfig"),
});

const disaggregated: PluginRule = here(
  "profile handler",
  "`disaggregation`, `engines[].role`, `kv-transfer` of engines",
  {
    why: "one policy chooses both engines",
    instead: "give engines `kv-transfer: llm-d-sidecar` where they are listed or found",
    parameters: {
      ...reads("decodeProfile", "prefillProfile", "encodeProfile", "profiles", "deciders", "deciderPluginName"),
      ...reads("prefillDeciderPluginName", "encodeDeciderPluginName", "prefixPluginType", "prefixPluginName"),
      stageOrder: missing("both engines are chosen together", nothing, "decode-first"),
      primaryPort: same("`ranks` of engines"),
      ...prefixMatch,
    },
  },
);

const encoders: PluginRule = absent(
  "decider",
  "images are not encoded by engines of their own",
  "engines that encode images themselves",
);

const disaggregationHeaders: PluginRule = here("profile handler", builtIn, {
  parameters: reads("prefillProfile", "encodeProfile"),
});

const eviction: PluginRule = absent(
  "flow control",
  "a request that runs is not ended for another one",
  "`admission.engine-priority`: engines preempt by class",
);

const ceiling: PluginRule = absent(
  "flow control",
  "how full engines may be for a class is a number of tokens",
  "a lower `max-pending-tokens` for lower `admission.classes`",
);

const grpcParser: PluginRule = absent("parser", "engines are reached over HTTP", "engines' OpenAI API");

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
      // Of the Gateway API Inference Extension, where the scorer kept the index itself.
      ...{ hashBlockSize: blockCharacters, blockSize: blockCharacters },
      maxPrefixBlocksToMatch: missing("it counts blocks of characters", "`policy.max-prefix-tokens`"),
      lruCapacityPerServer: missing("it counts blocks of characters", "`prefix.placement-tokens`"),
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
      parameters: reads("threshold"),
    },
    0.5,
  ),
  "latency-scorer": here("scorer", "`policy: predicted_latency`", {
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
  }),
  "session-affinity-scorer": session("scorer"),
  "context-length-aware": absent(
    "scorer",
    "engines have no range of prompt lengths",
    "`policy: predicted_latency`, which counts how many answers a long prompt holds up; or a model name for each range",
  ),
  "header-label-affinity-scorer": absent(
    "scorer",
    "labels of engines are not compared with headers",
    "a model name (`models.aliases`) for each label",
  ),
  "endpoint-attribute-scorer": attribute("scorer"),
  "mm-embeddings-cache-scorer": imageCaches("scorer"),
  "topology-affinity-scorer": places("scorer"),

  // Filters
  "decode-filter": role,
  "prefill-filter": role,
  "encode-filter": { ...encoders, kind: "filter" },
  "label-selector-filter": labels,
  "by-label-selector": labels,
  "by-label": labels,
  "prefix-cache-affinity-filter": here("filter", "`policy: affinity_filter`", {
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
  }),
  "slo-headroom-tier-filter": here("filter", "`policy: predicted_latency`", {
    policy: "predicted_latency",
    why: "deadlines decide in the queue, not among engines",
    instead: "`x-espalier-deadline-ms`, or `admission.classes[].target`",
    parameters: { epsilonExploreNeg: missing("engines beyond the deadline are not explored", nothing), ...predicted },
  }),
  "session-affinity-filter": session("filter"),
  "endpoint-attribute-filter": attribute("filter"),
  "topology-affinity-filter": places("filter"),
  "utilization-filter": absent(
    "filter",
    "engines that are full are left out by admission",
    "`admission.max-waiting`, `admission.max-kv-use`",
  ),
  "disaggregatedset-rollout-screener": absent(
    "filter",
    "revisions of a rollout are not told apart",
    "a model name for each revision, and `models.splits`",
  ),
  "header-based-testing-filter": absent("filter", "it is for tests of theirs", nothing),

  // Pickers
  "max-score-picker": here("picker", "the best engine, equals by weight; `endpoint-picker.fallbacks`", {
    parameters: maxPicked,
  }),
  "random-picker": here("picker", "`policy: random`", { policy: "random", parameters: maxPicked }),
  "weighted-random-picker": here("picker", "the best engine, equals by weight", {
    why: "scores are not chances",
    parameters: maxPicked,
  }),

  // Profile handlers and deciders
  "single-profile-handler": here("profile handler", builtIn),
  "disagg-profile-handler": disaggregated,
  "pd-profile-handler": disaggregated,
  "disagg-headers-handler": disaggregationHeaders,
  "prefill-header-handler": disaggregationHeaders,
  "data-parallel-profile-handler": here("profile handler", "`ranks` of engines, or an engine for each port", {
    parameters: { primaryPort: same("`ranks` of engines") },
  }),
  "header-profile-handler": absent("profile handler", "a header does not choose the policy", "`pools`, by model"),
  "prefix-based-pd-decider": here("decider", "`disaggregation.threshold-tokens`", {
    parameters: {
      nonCachedTokens: read,
      promptTokens: missing("only the tokens that no cache holds count", nothing, 0),
    },
  }),
  "always-disagg-pd-decider": here("decider", "`disaggregation.threshold-tokens: 1`"),
  "always-disagg-multimodal-decider": encoders,

  // Producers of data about requests
  "approx-prefix-cache-producer": here(
    "producer",
    "`policy.max-prefix-tokens`, `prefix.block-size`, `prefix.placement-tokens`",
    { parameters: approximateParameters },
  ),
  "precise-prefix-cache-producer": here("producer", "`tokenizers`, `kv-events`, `prefix.block-size`", {
    parameters: preciseParameters,
  }),
  "burst-prefix-cache-producer": here("producer", "a prompt counts as cached from when it is sent", {
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
  }),
  "token-producer": tokens,
  tokenizer: tokens,
  "inflight-load-producer": here("producer", builtIn, {
    parameters: {
      addEstimatedOutputTokens: learned,
      outputRatio: learned,
      maxEstimatedOutputTokens: learned,
      ...prefixMatch,
      syncCrossReplicaState: same("`mesh`"),
    },
  }),
  "predicted-latency-producer": here("producer", "`policy: predicted_latency`", {
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
  }),
  "session-id-producer": here("producer", "`session-key`", {
    parameters: {
      headerName: read,
      cookieName: missing("cookies hold no session key", "`session-key: [header:NAME]`"),
    },
  }),
  "mm-embeddings-cache-producer": imageCaches("producer"),
  "p2p-source-producer": absent(
    "producer",
    "an engine fetches a prefix from another one where its settings say that it can",
    "`engines[].kv-pull`, or `kv-pull` of a source under `discovery`",
  ),
  "agent-identity": here("producer", "`session-key`, where a session plugin reads it", {
    why: "it is no tenant: tenants come from API keys or `x-espalier-tenant`",
    parameters: reads("additionalSessionHeaders"),
  }),
  "request-attribute-reporter": absent(
    "producer",
    "usage is not written into the gateway's metadata",
    "`espalier_tokens_total` in `/metrics`",
  ),
  "destination-endpoint-served-verifier": absent("producer", "it is for tests of theirs", nothing),

  // Data layer
  "metrics-data-source": here("data layer", "`scrape`, `engine-tls`", {
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
  }),
  "core-metrics-extractor": here("data layer", "the metrics of vLLM, SGLang and TensorRT-LLM are known", {
    parameters: {
      engineLabelKey: same("the kind of engine is seen from its metrics"),
      defaultEngine: same("the kind of engine is seen from its metrics"),
      engineConfigs: missing("names of metrics cannot be set", "the names that vLLM, SGLang and TensorRT-LLM use"),
    },
  }),
  "models-data-source": here("data layer", builtIn, {
    parameters: {
      scheme: read,
      path: same("`/v1/models`"),
      insecureSkipVerify: read,
      caCertPath: text("engine-tls.ca-file"),
      clientCertPath: text("engine-tls.cert-file"),
      clientKeyPath: text("engine-tls.key-file"),
      interval: same("models are asked for with the health checks"),
    },
  }),
  "models-data-extractor": here("data layer", builtIn),
  "endpoint-notification-source": here("data layer", builtIn),
  "k8s-notification-source": here("data layer", builtIn, { parameters: reads("group", "version", "kind") }),
  "file-discovery": here("data layer", "`engines-file`", {
    why: "the file is a list of engines by URL",
    instead: "write `- url: http://ADDRESS:PORT` for each endpoint, with its `labels`",
    parameters: { path: text("engines-file"), watchFile: same("the file is watched") },
  }),
  "dcgm-data-source": gpuMetrics,
  "dcgm-extractor": gpuMetrics,
  "topology-extractor": places("data layer"),

  // Parsers
  "openai-parser": here("parser", builtIn),
  "anthropic-parser": here("parser", builtIn),
  "sglanghttp-parser": here("parser", builtIn),
  "vllmhttp-parser": here("parser", "`forward-paths: [/inference/v1/generate]`", {
    why: "the prompt is not looked at",
  }),
  "passthrough-parser": here("parser", "`forward-paths`", {
    why: "further paths are forwarded only if they are listed",
    instead: "list them in `forward-paths`",
  }),
  "vllmgrpc-parser": grpcParser,
  "vertexai-parser": grpcParser,

  // Flow control
  "fcfs-ordering-policy": here("flow control", "`admission.classes[].order: fcfs`"),
  "edf-ordering-policy": here("flow control", "`admission.classes[].order: edf`", {
    why: "a deadline is for the first token, and comes with the request",
  }),
  "slo-deadline-ordering-policy": here("flow control", "`admission.classes[].order: edf`", {
    why: "a deadline is for the first token, and comes with the request",
  }),
  "round-robin-fairness-policy": here("flow control", builtIn, {
    why: "tenants take turns by tokens, not by requests",
  }),
  "global-strict-fairness-policy": here("flow control", builtIn, {
    why: "tenants of a class have equal shares; only the order within one is as before",
  }),
  "program-aware-fairness": here("flow control", builtIn, {
    why: "tenants have equal shares of the tokens, whatever they have had before",
    parameters: reads(
      "strategy",
      "evictionTtlSeconds",
      "evictionSweepSeconds",
      "lasWeightService",
      "lasWeightHeadWait",
      "lasHalfLifeSeconds",
    ),
  }),
  "static-usage-limit-policy": here("flow control", builtIn, {
    parameters: {
      threshold: missing("engines are filled up to their limits", "lower limits under `admission`", 1),
    },
  }),
  "priority-holdback-policy": ceiling,
  "soft-reflective-ceiling-policy": ceiling,
  "sheddable-eviction-filter": eviction,
  "priority-then-time-eviction-order-policy": eviction,

  // Saturation and admission
  "utilization-detector": here("saturation detector", "`admission.max-waiting`, `admission.max-kv-use`", {
    why: "each engine has its limits; theirs are for the mean of the pool",
    parameters: {
      queueDepthThreshold: read,
      kvCacheUtilThreshold: read,
      metricsStalenessThreshold: same("between two scrapes the routers' own accounting counts"),
      headroom: missing("there is one limit, not one for the pool and one for an engine", nothing, 0),
    },
  }),
  "concurrency-detector": here("saturation detector", "`admission.classes[].max-pending-tokens`", {
    why: "only the tokens of prompts count, and only until their answers begin",
    parameters: {
      maxConcurrency: read,
      maxTokenConcurrency: read,
      concurrencyMode: read,
      headroom: missing("there is one limit, not one for the pool and one for an engine", nothing, 0),
      ...inFlight,
    },
  }),
  "latency-slo-admitter": here("admission", "`admission.classes[].on-miss: reject`", {
    why: "only the time to the first token has a deadline",
    parameters: predicted,
  }),
  "probabilistic-admitter": absent(
    "admission",
    "requests are not refused by chance",
    "`admission`: they wait, by class, and the lowest class is dropped first",
  ),

  // Clusters as endpoints
  "multicluster-queue-scorer": clusters("scorer"),
  "multicluster-kv-cache-utilization-scorer": clusters("scorer"),
  "multicluster-prefix-cache-scorer": clusters("scorer"),
  "multicluster-session-affinity-filter": clusters("filter"),
  "multicluster-approx-prefix-cache-producer": clusters("producer"),
  "multicluster-metrics-data-source": clusters("data layer"),
  "multicluster-metrics-extractor": clusters("data layer"),
  "multicluster-file-discovery": clusters("data layer"),
};
