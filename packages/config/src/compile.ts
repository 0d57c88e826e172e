import { isLoopback } from "@espalier/common";
import type {
  AdmissionConfig,
  ApiKey,
  CompiledConfig,
  ListenerTls,
  PolicyConfig,
  SessionKeySource,
} from "./compiled-config.ts";
import { sha256Of } from "./cross-checks.ts";
import { compileDiscovery } from "./discovery-config.ts";
import { compileEngines } from "./engine-specs.ts";
import type { Environment } from "./interpolate.ts";
import { compileMesh } from "./mesh-config.ts";
import { fingerprintsOf } from "./reload.ts";
import type { ConfigTree } from "./schema/config-schema.ts";
import { mask, Secret } from "./secret.ts";
import { compileTracing } from "./tracing-config.ts";

/** Turns a checked tree into what the router uses. Keys of the data plane and of admins are hashed and not kept. */
export function compileConfig(tree: ConfigTree, env: Environment, isFileBlank: boolean): CompiledConfig {
  return {
    isFileBlank,
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
    pools: tree.pools.map(({ models, policy, "engine-api-key": key, "forward-authorization": forwards }) => ({
      models,
      policy: compilePolicy(policy ?? tree.policy),
      engineApiKey: key === undefined ? undefined : new Secret(key),
      forwardAuthorization: forwards,
    })),
    admission: compileAdmission(tree),
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
      patienceMs: patience,
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
  return warnings;
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
    mesh: {
      ...masked(tree.mesh, "secret", "redis-url"),
      "accepted-secrets": tree.mesh["accepted-secrets"].map(() => mask),
    },
    tracing: masked(tree.tracing, "headers"),
  };
}
