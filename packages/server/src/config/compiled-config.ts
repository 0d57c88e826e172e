import { type EngineSpec, isLoopback, type KvEventsSpec } from "@espalier/core";
import { sha256Of } from "./cross-checks.ts";
import type { Environment } from "./interpolate.ts";
import { type Fingerprints, fingerprintsOf } from "./reload.ts";
import type { ConfigTree } from "./schema.ts";
import { mask, Secret } from "./secret.ts";
import { compileDiscovery, type DiscoveryConfig } from "./sections/discovery.ts";
import { compileEngines } from "./sections/engines.ts";
import { compileMesh, type MeshConfig } from "./sections/mesh.ts";
import { compileOverflow, type OverflowConfig, overflowWarnings } from "./sections/overflow.ts";
import { compileTracing, type TracingConfig } from "./sections/tracing.ts";

/** Paths of PEM files of a listener. With `caFile`, clients must present a certificate. */
export interface ListenerTls {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string | undefined;
}

/** How a router serves Envoy gateways as their endpoint picker. */
export interface EndpointPickerConfig {
  readonly host: string;
  readonly port: number;
  readonly healthPort: number;
  readonly tls: ListenerTls | undefined;
  /** From the whole request to its answer to the gateway. */
  readonly answerWithinMs: number;
  /** How long a request with an unseen answer counts as running. */
  readonly releaseAfterMs: number;
  /** Engines named after the chosen one. */
  readonly fallbacks: number;
  readonly showsScores: boolean;
}

/** How many engines the load needs, and who is told. */
export interface ScaleConfig {
  /** Share of an engine's time that the load may take. */
  readonly utilization: number;
  /** Time in which requests that wait without a deadline have to begin. */
  readonly catchUpMs: number;
  /** Time without requests after which a model needs no engine. */
  readonly idleMs: number;
  /** Listener of the external scaler; undefined without one. */
  readonly listen: { readonly host: string; readonly port: number; readonly tls: ListenerTls | undefined } | undefined;
}

export interface ApiKey {
  readonly name: string;
  /** SHA-256 of the key: 32 bytes. */
  readonly sha256: Buffer;
}

/** A policy by name. Options that were not set are absent: the policy has its own defaults. */
export interface PolicyConfig {
  readonly name: string;
  readonly options: Readonly<Record<string, number | string>>;
}

export interface PoolConfig {
  /** Names of models. `*` matches any text. */
  readonly models: readonly string[];
  readonly policy: PolicyConfig;
  readonly engineApiKey: Secret | undefined;
  readonly forwardAuthorization: boolean;
  /** How long requests wait for an engine while none is up; 0 for not at all. */
  readonly holdMs: number;
}

export interface TokenizerConfig {
  /** Names of models. `*` matches any text. */
  readonly models: readonly string[];
  readonly mode: "local" | "engine" | "bytes";
  /** Engine release whose rules turn chats into prompts; `auto` for the kind of engine that serves the model. */
  readonly engine: "auto" | "vllm-0.23" | "vllm-0.32" | "sglang-0.5.23";
  /** Folder of the model's files. It is set in mode `local`. */
  readonly path: string | undefined;
}

/** A pool of KV blocks outside the engines, and which engines use it. */
export interface KvPoolConfig {
  readonly name: string;
  /** One stream of events: the endpoints are the same for every rank. */
  readonly events: KvEventsSpec;
  /** Models whose engines use the pool, by name; `*` matches any text. */
  readonly models: readonly string[];
  /** Labels that these engines must all have. */
  readonly labels: Readonly<Record<string, string>>;
}

export interface WeightedModel {
  readonly model: string;
  /** Relative share. At least one side of a split is above 0. */
  readonly weight: number;
}

/** A place to look for a session key. Names of headers are in lower case. */
export interface SessionKeySource {
  readonly from: "header" | "body";
  readonly name: string;
}

/** Whether low or high numbers of a body's `priority` go first, or the field is ignored. */
export type PriorityDirection = "off" | "lower-first" | "higher-first";

/** Which requests wait while engines are saturated. */
export interface AdmissionConfig {
  readonly isOn: boolean;
  /** The highest first. */
  readonly classes: readonly {
    readonly name: string;
    readonly order: "fcfs" | "edf" | "shortest_prefill";
    /** The shares of all classes add up to at most 1. */
    readonly share: number;
    readonly targetMs: number | undefined;
    readonly onMiss: "reject" | "demote";
    readonly maxPendingTokens: number;
    readonly yields: boolean;
    readonly mayOverflow: boolean;
    readonly maxColdWaitMs: number;
  }[];
  readonly defaultClass: string;
  readonly between: "strict" | "deficit";
  readonly maxQueued: number;
  readonly maxQueuedBytes: number;
  readonly maxWaiting: number;
  readonly maxKvUse: number;
  /** Whether a header may name another tenant than the API key's. */
  readonly trustsTenantHeader: boolean;
  readonly bodyPriority: PriorityDirection;
  readonly enginePriority: PriorityDirection;
  readonly engineOrder: "arrival" | "shortest";
}

/** The configuration as the router uses it: checked, complete, in the units given by the names. */
export interface CompiledConfig {
  /** Whether there is a file without any content. */
  readonly isFileBlank: boolean;
  /** Routers that share the clients' port, each a process; `auto` for one per core. */
  readonly processes: number | "auto";
  /** Longest warm-up before the router reports ready; 0 for none. */
  readonly warmUpMs: number;
  readonly listen: { readonly host: string; readonly port: number; readonly tls: ListenerTls | undefined };
  readonly admin: {
    readonly host: string;
    readonly port: number;
    readonly tls: ListenerTls | undefined;
    /** Origin by which browsers reach it: scheme, host and port. */
    readonly advertise: string | undefined;
    /** SHA-256 of the admin key: 32 bytes. Undefined leaves the admin listener open, on a loopback address only. */
    readonly keySha256: Buffer | undefined;
    readonly hasDashboard: boolean;
  };
  /** Undefined when the router is no endpoint picker of gateways. */
  readonly endpointPicker: EndpointPickerConfig | undefined;
  readonly scale: ScaleConfig;
  /** Empty: every client is accepted. */
  readonly apiKeys: readonly ApiKey[];
  /** Origins of web pages that may call the API; `*` for all. */
  readonly corsOrigins: readonly string[];
  readonly engines: readonly EngineSpec[];
  /** A file for `parseEnginesFile`. */
  readonly enginesFile: string | undefined;
  readonly discovery: DiscoveryConfig;
  readonly engineTls: {
    readonly caFile: string | undefined;
    readonly certFile: string | undefined;
    readonly keyFile: string | undefined;
    readonly verify: boolean;
  };
  /** Absolute paths of modules. */
  readonly plugins: readonly string[];
  readonly policy: PolicyConfig;
  readonly sessionKey: readonly SessionKeySource[];
  /** The first pool with a matching pattern applies. A model without one has `policy` and no credentials. */
  readonly pools: readonly PoolConfig[];
  readonly admission: AdmissionConfig;
  /** Providers that answer when the engines cannot, in the order in which they are tried. */
  readonly overflow: readonly OverflowConfig[];
  /** Threshold of uncached prompt tokens at which a request is split between two engines. */
  readonly disaggregation: {
    /** Undefined to compute it for each request, between the bounds. */
    readonly fixedTokens: number | undefined;
    readonly minTokens: number;
    readonly maxTokens: number;
    /** Whether engines of role `both` are assigned to prefill or decode, by the recent mix of requests. */
    readonly appliesRoleBalance: boolean;
  };
  readonly models: {
    readonly aliases: Readonly<Record<string, string>>;
    readonly splits: Readonly<Record<string, readonly WeightedModel[]>>;
    /** LoRA adapters that engines load on demand: their base model, and the path at the engines. */
    readonly adapters: Readonly<Record<string, { readonly model: string; readonly path: string }>>;
    /** Most of them that an engine has loaded at once. */
    readonly maxLoaded: number;
  };
  /** How prompts are tokenized. The first entry with a matching pattern applies. */
  readonly tokenizers: readonly TokenizerConfig[];
  readonly tokenize: { readonly budgetMs: number; readonly threads: number; readonly cacheBytes: number };
  readonly prefix: {
    /** Tokens. */
    readonly blockSize: number;
    readonly seed: string;
    readonly placementTtlMs: number;
    /** Assumed cache capacity of an engine whose metrics do not report it, in tokens. */
    readonly placementTokens: number;
  };
  readonly kvEvents: {
    readonly mode: "auto" | "off";
    /** ZeroMQ endpoint to bind for engines that connect. */
    readonly listen: string | undefined;
    readonly maxReplays: number;
  };
  readonly kvPools: readonly KvPoolConfig[];
  readonly mesh: MeshConfig;
  readonly tracing: TracingConfig;
  /** Paths, optionally ending in `*`. */
  readonly forwardPaths: readonly string[];
  readonly injectUsage: boolean;
  readonly trustTransferFields: boolean;
  readonly health: {
    readonly path: string;
    readonly intervalMs: number;
    readonly timeoutMs: number;
    readonly downAfter: number;
    readonly upAfter: number;
    /** Share of a model's engines that must be up. Below it, engines that are down are tried. 0 turns this off. */
    readonly panicThreshold: number;
  };
  readonly scrape: {
    readonly path: string;
    /** Undefined if not set: then the policies' needs decide. */
    readonly intervalMs: number | undefined;
    readonly timeoutMs: number;
  };
  readonly breaker: {
    readonly consecutiveFailures: number;
    readonly failureShare: number;
    readonly windowRequests: number;
    readonly windowMs: number;
    readonly openMs: number;
    readonly maxOpenMs: number;
    readonly successesToClose: number;
    readonly maxEjectedShare: number;
  };
  readonly retry: {
    readonly budgetRatio: number;
    readonly budgetMinimum: number;
    readonly statuses: readonly number[];
  };
  readonly timeouts: {
    readonly connectMs: number;
    readonly firstByteMs: number;
    readonly answerMs: number | undefined;
    readonly idleMs: number;
    readonly clientWriteMs: number;
    readonly engineKeepAliveMs: number;
    readonly requestReceiveMs: number;
    readonly keepAliveMs: number;
  };
  readonly limits: {
    readonly maxBodyBytes: number;
    readonly maxHeaderBytes: number;
    readonly maxNesting: number;
    readonly maxConcurrentRequests: number;
    readonly maxBodyBytesInFlight: number;
    readonly maxConnections: number;
    readonly maxConnectionsPerEngine: number;
    readonly maxQueuedPerEngine: number;
    readonly maxEventLoopDelayMs: number;
    readonly maxHeapShare: number;
    readonly maxMeshBufferBytes: number;
  };
  readonly drain: { readonly delayMs: number; readonly graceMs: number };
  readonly log: { readonly level: "debug" | "info" | "warn" | "error"; readonly format: "auto" | "json" | "pretty" };
  /** Settings that are allowed but probably mistakes, in sentences. */
  readonly warnings: readonly string[];
  /** The configuration in the form of the file, with all defaults and with secrets masked. */
  readonly effective: ConfigTree;
  /** For `changedPaths`. */
  readonly fingerprints: Fingerprints;
}

/** Compiles a checked tree into the form that the router uses. API keys and the admin key are kept as hashes only. */
export function compileConfig(
  tree: ConfigTree,
  { env, isFileBlank }: { env: Environment; isFileBlank: boolean },
): CompiledConfig {
  return {
    isFileBlank,
    plugins: tree.plugins,
    ...compileListeners(tree),
    ...compileRouting(tree),
    ...compileEngineSide(tree),
    discovery: compileDiscovery(tree, env),
    mesh: compileMesh(tree),
    tracing: compileTracing(tree),
    warnings: warningsOf(tree),
    effective: maskSecrets(tree),
    fingerprints: fingerprintsOf(tree),
  };
}

function compileModels({ models: { "max-loaded-adapters": maxLoaded, ...names } }: ConfigTree) {
  return { ...names, maxLoaded };
}

function compileTls(tls: ConfigTree["listen"]["tls"]): ListenerTls | undefined {
  return tls && { certFile: tls["cert-file"], keyFile: tls["key-file"], caFile: tls["ca-file"] };
}

function compileEndpointPicker(tree: ConfigTree["endpoint-picker"]): EndpointPickerConfig | undefined {
  if (tree.port === undefined) return undefined;
  return {
    host: tree.host,
    port: tree.port,
    healthPort: tree["health-port"],
    tls: compileTls(tree.tls),
    answerWithinMs: tree["answer-within"],
    releaseAfterMs: tree["release-after"],
    fallbacks: tree.fallbacks,
    showsScores: tree.scores,
  };
}

function compileScale({ utilization, host, port, tls, idle, "catch-up": catchUpMs }: ConfigTree["scale"]): ScaleConfig {
  const listen = port === undefined ? undefined : { host, port, tls: compileTls(tls) };
  return { utilization, catchUpMs, idleMs: idle, listen };
}

function compileListeners(tree: ConfigTree) {
  const { processes, listen, admin, timeouts, limits, drain, log } = tree;
  return {
    processes,
    warmUpMs: tree["warm-up"],
    listen: { host: listen.host, port: listen.port, tls: compileTls(listen.tls) },
    admin: {
      tls: compileTls(admin.tls),
      host: admin.host,
      port: admin.port,
      advertise: admin.advertise === undefined ? undefined : new URL(admin.advertise).origin,
      keySha256: admin.key === undefined ? undefined : sha256Of(admin.key),
      hasDashboard: admin.dashboard,
    },
    endpointPicker: compileEndpointPicker(tree["endpoint-picker"]),
    scale: compileScale(tree.scale),
    apiKeys: tree["api-keys"].map(compileApiKey),
    corsOrigins: tree.cors.origins,
    timeouts: {
      connectMs: timeouts.connect,
      firstByteMs: timeouts["first-byte"],
      answerMs: timeouts.answer,
      idleMs: timeouts.idle,
      clientWriteMs: timeouts["client-write"],
      engineKeepAliveMs: timeouts["engine-keep-alive"],
      requestReceiveMs: timeouts["request-receive"],
      keepAliveMs: timeouts["keep-alive"],
    },
    limits: {
      maxBodyBytes: limits["max-body-bytes"],
      maxHeaderBytes: limits["max-header-bytes"],
      maxNesting: limits["max-nesting"],
      maxConcurrentRequests: limits["max-concurrent-requests"],
      maxBodyBytesInFlight: limits["max-body-bytes-in-flight"],
      maxConnections: limits["max-connections"],
      maxConnectionsPerEngine: limits["max-connections-per-engine"],
      maxQueuedPerEngine: limits["max-queued-per-engine"],
      maxEventLoopDelayMs: limits["max-event-loop-delay"],
      maxHeapShare: limits["max-heap-share"],
      maxMeshBufferBytes: limits["max-mesh-buffer"],
    },
    drain: { delayMs: drain.delay, graceMs: drain.grace },
    log,
  };
}

function compileApiKey({ name, key, "key-sha256": sha256 }: ConfigTree["api-keys"][number]): ApiKey {
  return { name, sha256: sha256 === undefined ? sha256Of(key ?? "") : Buffer.from(sha256, "hex") };
}

function compileRouting(tree: ConfigTree) {
  return {
    policy: compilePolicy(tree.policy),
    sessionKey: tree["session-key"].map(compileSource),
    pools: tree.pools.map(({ models, policy, "engine-api-key": key, "forward-authorization": forwards, ...rest }) => ({
      models,
      policy: compilePolicy(policy ?? tree.policy),
      engineApiKey: key === undefined ? undefined : new Secret(key),
      forwardAuthorization: forwards,
      holdMs: rest["scale-from-zero"].hold,
    })),
    admission: compileAdmission(tree),
    overflow: compileOverflow(tree),
    disaggregation: {
      fixedTokens: tree.disaggregation["threshold-tokens"],
      minTokens: tree.disaggregation["min-tokens"],
      maxTokens: tree.disaggregation["max-tokens"],
      appliesRoleBalance: tree.disaggregation["apply-role-balance"],
    },
    models: compileModels(tree),
    tokenizers: tree.tokenizers.map(({ models, mode, engine, path }) => ({ models, mode, engine, path })),
    tokenize: {
      budgetMs: tree.tokenize.budget,
      threads: tree.tokenize.threads,
      cacheBytes: tree.tokenize.cache,
    },
    prefix: {
      blockSize: tree.prefix["block-size"],
      seed: tree.prefix.seed,
      placementTtlMs: tree.prefix["placement-ttl"],
      placementTokens: tree.prefix["placement-tokens"],
    },
    kvEvents: {
      mode: tree["kv-events"].mode,
      listen: tree["kv-events"].listen,
      maxReplays: tree["kv-events"]["max-replays"],
    },
    kvPools: tree["kv-pools"].map(({ name, endpoint, replay, topic, models, labels }) => ({
      ...{ name, models, labels },
      events: { endpoint, replayEndpoint: replay, topic },
    })),
    forwardPaths: tree["forward-paths"],
    injectUsage: tree["inject-usage"],
    trustTransferFields: tree["trust-transfer-fields"],
  };
}

function compileAdmission({ admission }: ConfigTree): AdmissionConfig {
  return {
    isOn: admission.mode === "on",
    classes: admission.classes.map(({ name, order, share, target, patience, yields, ...rest }) => ({
      ...{ name, order, share, yields },
      targetMs: target,
      maxColdWaitMs: patience,
      mayOverflow: rest.overflow === "allow",
      onMiss: rest["on-miss"],
      maxPendingTokens: rest["max-pending-tokens"],
    })),
    defaultClass: admission["default-class"],
    between: admission.between,
    maxQueued: admission["max-queued"],
    maxQueuedBytes: admission["max-queued-bytes"],
    maxWaiting: admission["max-waiting"],
    maxKvUse: admission["max-kv-use"],
    trustsTenantHeader: admission["trust-tenant-header"],
    bodyPriority: admission["body-priority"],
    enginePriority: admission["engine-priority"],
    engineOrder: admission["engine-order"],
  };
}

function compilePolicy({ name, ...options }: ConfigTree["policy"]): PolicyConfig {
  return { name, options };
}

function compileSource(written: string): SessionKeySource {
  const [from, name] = [written.slice(0, written.indexOf(":")), written.slice(written.indexOf(":") + 1)];
  return from === "header" ? { from, name: name.toLowerCase() } : { from: "body", name };
}

function compileEngineSide(tree: ConfigTree) {
  const { health, scrape, breaker, retry, "engine-tls": tls } = tree;
  return {
    engines: compileEngines(tree.engines),
    enginesFile: tree["engines-file"],
    engineTls: {
      caFile: tls["ca-file"],
      certFile: tls["cert-file"],
      keyFile: tls["key-file"],
      verify: tls.verify,
    },
    health: {
      path: health.path,
      intervalMs: health.interval,
      timeoutMs: health.timeout,
      downAfter: health["down-after"],
      upAfter: health["up-after"],
      panicThreshold: health["panic-threshold"],
    },
    scrape: { path: scrape.path, intervalMs: scrape.interval, timeoutMs: scrape.timeout },
    breaker: {
      consecutiveFailures: breaker["consecutive-failures"],
      failureShare: breaker["failure-share"],
      windowRequests: breaker["window-requests"],
      windowMs: breaker.window,
      openMs: breaker.open,
      maxOpenMs: breaker["max-open"],
      successesToClose: breaker["successes-to-close"],
      maxEjectedShare: breaker["max-ejected-share"],
    },
    retry: {
      budgetRatio: retry["budget-ratio"],
      budgetMinimum: retry["budget-minimum"],
      statuses: retry.statuses,
    },
  };
}

function warningsOf(tree: ConfigTree): string[] {
  const warnings: string[] = [];
  const { dns, services, pods, "inference-pools": inferencePools } = tree.discovery;
  const hasSources = [dns, services, pods, inferencePools].some((sources) => sources.length > 0);
  if (tree.engines.length === 0 && tree["engines-file"] === undefined && !hasSources) {
    warnings.push("No engines are configured; the router is not ready until some are added.");
  }
  if (tree["api-keys"].length === 0 && !isLoopback(tree.listen.host)) {
    warnings.push(`Anyone who reaches ${tree.listen.host}:${tree.listen.port} can use the engines: api-keys is empty.`);
  }
  if (!tree["engine-tls"].verify) warnings.push("Certificates of engines are not checked: engine-tls.verify is false.");
  for (const { url } of compileEngines(tree.engines).filter((engine) => engine.url.endsWith("/v1"))) {
    warnings.push(`The router asks for ${url}/v1/models. Leave out the /v1 at the end of ${url}.`);
  }
  return [...warnings, ...overflowWarnings(tree)];
}

function maskSecrets(tree: ConfigTree): ConfigTree {
  const masked = <Entry extends object, Key extends keyof Entry>(entry: Entry, ...keys: readonly Key[]): Entry => ({
    ...entry,
    ...Object.fromEntries(keys.filter((key) => entry[key] !== undefined).map((key) => [key, mask])),
  });
  return {
    ...tree,
    admin: masked(tree.admin, "key"),
    "api-keys": tree["api-keys"].map((entry) => masked(entry, "key", "key-sha256")),
    pools: tree.pools.map((pool) => masked(pool, "engine-api-key")),
    overflow: tree.overflow.map((backend) => masked(backend, "key")),
    mesh: {
      ...masked(tree.mesh, "secret", "redis-url"),
      "accepted-secrets": tree.mesh["accepted-secrets"].map(() => mask),
    },
    tracing: masked(tree.tracing, "headers"),
  };
}
