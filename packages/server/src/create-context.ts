import {
  asTargetIndex,
  type Clock,
  counterBy,
  counterOf,
  type EngineId,
  type HttpClient,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  silentTracer,
  systemClock,
  systemRandom,
  systemScheduler,
} from "@espalier/core";
import { createFleet, createProxy, type Proxy as EngineProxy, watchFile } from "@espalier/engines";
import { createPrefixIndex } from "@espalier/prefix-index";
import {
  type CopyCredits,
  createFleetLearning,
  createLendTrust,
  createLocalBindings,
  createPeerTraffic,
  createRetryBudget,
  createRetryMeters,
  createSessionBindings,
  createSharedCredits,
  createTargetSelector,
  DecisionLog,
  dryRunCredits,
  dryRunSessions,
  dryRunTraffic,
  exclusions,
  keptDecisions,
  maxKnownTargets,
} from "@espalier/routing";
import { AdapterLoader } from "./adapters/adapter-loader.ts";
import { type AdapterUse, createAdapterUse } from "./adapters/adapter-use.ts";
import { createPrefixUse } from "./admin/prefix-use.ts";
import { createRecorder } from "./admin/recorder.ts";
import { type CompiledConfig, sharedSettings, type TracingConfig } from "./config/index.ts";
import type { RouterDependencies } from "./create-router.ts";
import { createResponseFinder, createStoredResponses } from "./data-plane/stored-responses.ts";
import { createDecisionColumns } from "./decisions/decision-columns.ts";
import { createDecisionFeed, type DescribedDecision } from "./decisions/decision-feed.ts";
import { createIdentityCheck } from "./extensions/auth.ts";
import { createHookCalls, createWarn, type Hooks, type Warn } from "./extensions/hooks.ts";
import { checkCustomPolicies, checkHooks } from "./extensions/plugins.ts";
import { createLargeBodies } from "./large-bodies/large-bodies.ts";
import { readEngineTls } from "./lifecycle/certificates.ts";
import { maxEventSockets, shareDescriptors } from "./lifecycle/descriptors.ts";
import { createDrain, type DrainedListeners } from "./lifecycle/drain.ts";
import { createEngineSources, type EngineSources } from "./lifecycle/engine-sources.ts";
import { createConnectionLimit } from "./lifecycle/listener.ts";
import { createLiveConfig } from "./lifecycle/live-config.ts";
import { createLocalTable, createSharedTable } from "./lifecycle/operator-engines.ts";
import { createOverload } from "./lifecycle/overload.ts";
import { createReloader, type Reloader } from "./lifecycle/reloader.ts";
import { type RouterRelease, settingsDigest } from "./mesh/fleet-watch.ts";
import { createMeshParts, routerIdOf } from "./mesh/mesh-parts.ts";
import { createSharedAborts } from "./orders/shared-aborts.ts";
import { createSharedMoves } from "./orders/shared-moves.ts";
import { Overflow } from "./overflow/overflow.ts";
import { poolTargets } from "./prefix/engine-feeds.ts";
import { createPrefixParts } from "./prefix/prefix-parts.ts";
import { createPrograms } from "./programs/programs.ts";
import { RealtimeConnections } from "./realtime/realtime-connections.ts";
import { HeldRequests } from "./request/held-requests.ts";
import { MovableStreams } from "./request/movable-streams.ts";
import { createAttemptMetrics, createRequestMetrics } from "./request/request-metrics.ts";
import { createEngineControl } from "./rollouts/engine-control.ts";
import type { RouterContext } from "./router-context.ts";
import { createAdmissionParts, watchMemory } from "./routing/admission-parts.ts";
import { createPools, type Pools, poolRules } from "./routing/pools.ts";
import { createSplitParts } from "./serving/split-parts.ts";
import { createResumeLedger } from "./serving/stream-resumption.ts";
import { createOtlpExporter, createSpanMeters, createTracing, type Tracing } from "./tracing/index.ts";

/** Connections beyond the limit that are kept open to be answered with 503. */
const maxRejectedConnections = 256;
/** Most stored responses whose engine is remembered. */
const storedResponseCapacity = 100_000;

export interface RouterParts extends RouterContext {
  readonly sources: EngineSources;
  readonly reloader: Reloader;
  /** Undefined where nothing is traced. */
  readonly tracing: Tracing | undefined;
}

/** The ports of the running process, and the meter. */
interface Ports extends Required<Pick<RouterDependencies, "clock" | "scheduler" | "random" | "logger">> {
  readonly meter: Meter;
}

/**
 * Wires the parts of a router. Nothing runs before they are started.
 *
 * @param listeners what a drain closes
 */
export function createContext(
  dependencies: RouterDependencies,
  meter: Meter,
  listeners: DrainedListeners,
): RouterParts {
  const { config, configSource, onReload, logger } = dependencies;
  const { clock = systemClock, scheduler = systemScheduler, random = systemRandom } = dependencies;
  const ports: Ports = { clock, scheduler, random, logger, meter };
  const countDropped = counterOf(
    meter,
    "espalier_log_dropped_lines_total",
    "Log lines dropped because output failed or was too slow.",
  );
  dependencies.onDroppedLogLines?.(countDropped);
  const warn = createWarn(clock, logger);
  const rulesOf = createRules(dependencies, warn);
  const pools = createPools(rulesOf(config), (model) => learning.workOf(fleet.model(model)?.parent ?? model));
  const version = dependencies.version ?? "";
  let settings = sharedSettings(config);
  const { openFiles = Number.POSITIVE_INFINITY } = dependencies;
  const engineSide = createEngineSide(config, ports, pools, { version, settings, openFiles });
  const { proxy, http, lookups, index, mesh, fleet, prefix } = engineSide;
  const descriptors = shareDescriptors(openFiles, () => prefix.openFiles);
  const inFlight = { count: 0, bodyBytes: 0 };
  const learning = createFleetLearning({ channel: mesh?.replica.notes, clock, scheduler, meter });
  const realtime = new RealtimeConnections({ fleet, scheduler, meter, graceMs: () => live.current.drain.graceMs });
  const credits = createSharedCredits({ channel: mesh?.replica.notes, clock, scheduler, meter });
  const tableOf = (source: "operator" | "rollouts") =>
    mesh ? createSharedTable(mesh.replica.registry, source) : createLocalTable();
  const table = tableOf("operator");
  const sources = createEngineSources({ ...ports, config, table, fleet });
  const engineControl = createEngineControl({ table: tableOf("rollouts"), fleet, clock });
  const held = new HeldRequests();
  const movableStreams = new MovableStreams();
  const memory = watchMemory({ config: config.admission, clock, index, feedQualityOf: prefix.feedQualityOf });
  const onChange = (now: CompiledConfig): void => {
    settings = sharedSettings(now);
    mesh?.reconfigure({ mesh: now.mesh, settings });
    void sources.follow(now);
    onReload?.(now);
  };
  const live = createLiveConfig({ config, random, pools, rulesOf, rewrites: sources.requestTables, onChange });
  const adapterUse = createAdapterUse({ clock, scheduler, random, shared: mesh?.replica.bindings });
  const instanceId = (): string => mesh?.describe().router ?? routerIdOf(config.mesh, random);
  const tracing = createTracingParts({ ...ports, config: config.tracing, instanceId });
  const decisionLog = new DecisionLog(keptDecisions, createDecisionColumns());
  const decisions = createDecisionFeed({ scheduler, seed: config.prefix.seed });
  const selectors = createSelectors(engineSide, adapterUse, credits, decisionLog, ports);
  return {
    ...{ tracing, tracer: tracing ?? silentTracer, sources, objectives: sources.requestTables },
    ...{ clock, random, scheduler, logger, live, inFlight, descriptors, pools, adapterUse, learning, credits },
    ...{ decisionLog, recorder: createRecorder({ clock, random }) },
    ...{ fleet, prefix, index, proxy, mesh, controlHttp: http, engineControl },
    heldRequests: held,
    abortRequests: createSharedAborts({ held, notes: mesh?.replica.notes }),
    movableStreams,
    moveStreams: createSharedMoves({
      streams: movableStreams,
      fleet,
      notes: mesh?.replica.notes,
      logger: ports.logger,
    }),
    operators: {
      add: sources.operators.add,
      remove(id) {
        sources.operators.remove(id);
        engineControl.forget(id);
      },
    },
    hooks: createHookCalls(hooksOf(dependencies), { scheduler, meter, warn }),
    checkIdentity: dependencies.auth && createIdentityCheck(dependencies.auth, { scheduler, warn }),
    release: () => ({ version, settings: settingsDigest(settings) }),
    ...selectors,
    reloader: createReloader({
      ...{ source: configSource, clock, logger, meter },
      apply: live.apply,
      isBlank: () => live.current.isFileBlank,
      watch: (path, onChange) => watchFile({ path, logger, scheduler }, onChange),
    }),
    split: createSplitParts({ config, clock, http, fleet, meter, ...selectors, notes: mesh?.replica.notes }),
    exchange: createExchangeParts(config, proxy, ports),
    resumeLedger: createResumeLedger(ports.meter),
    adapterLoader: new AdapterLoader({ ...config.models, use: adapterUse, fleet, http, clock, logger, meter }),
    admission: createAdmissionParts({
      ...{ config: config.admission, minHoldMs: config.rollouts?.holdMs ?? 0, clock, scheduler, meter },
      ...{ others: mesh?.load, usage: mesh?.replica.usage },
    }),
    overflow: new Overflow({
      ...{ config, clock, scheduler, meter, channel: mesh?.replica.notes },
    }),
    overload: createOverload({
      ...{ clock, scheduler, logger, meter, limits: () => live.current.limits },
      bodyBytes: () => inFlight.bodyBytes,
      meshBytes: () => mesh?.bufferedBytes ?? 0,
    }),
    largeBodies: createLargeBodies({ scheduler, logger }),
    connections: createConnectionLimit({
      ...{ listener: "clients", meter, logger },
      maxRejected: () => Math.min(maxRejectedConnections, descriptors.rejected),
      max: () => Math.min(live.current.limits.maxConnections, descriptors.clients),
    }),
    realtime,
    memory,
    metrics: createRequestMetrics(meter),
    prefixUse: createPrefixUse(clock),
    decisions,
    programs: createPrograms({
      ...{ clock, scheduler, meter, memory, notes: mesh?.replica.notes, sessionName: decisions.sessionName },
    }),
    storedResponses: createStoredResponses(storedResponseCapacity, mesh?.replica.bindings),
    responseFinder: createResponseFinder({ fleet, pools, http: lookups, clock }),
    drain: createDrain({
      ...{ clock, scheduler, logger, ...listeners, activeCount: () => inFlight.count },
      closeSockets: () => realtime.closeAll(),
      onStart: () => mesh?.setDraining(),
    }),
  };
}

/** The rules of pools, whose policies may be the program's own. */
function createRules({ policies = {} }: RouterDependencies, warn: Warn) {
  checkCustomPolicies(policies);
  const onFailure = (policy: string, error: unknown): void =>
    warn(`policy ${policy}`, "policy failed; falling back to the least loaded engine", { policy, error });
  return (config: CompiledConfig) => poolRules(config, { custom: policies, onFailure });
}

function hooksOf({ hooks = [] }: RouterDependencies): readonly Hooks[] {
  const all = [hooks].flat();
  for (const one of all) checkHooks(one);
  return all;
}

interface EngineSideOptions extends RouterRelease {
  readonly openFiles: number;
  /** Sees control requests to engines and their answers. */
  readonly observe?: (http: HttpClient) => HttpClient;
  /** As `PrefixPartsOptions` has it. */
  readonly mayBindEvents?: boolean;
}

/** The engines, what the router knows of them, and what it shares with other routers. */
export function createEngineSide(
  config: CompiledConfig,
  ports: Ports,
  { metricsEveryMs }: Pick<Pools, "metricsEveryMs">,
  { openFiles, observe = (http) => http, mayBindEvents = true, ...release }: EngineSideOptions,
) {
  const { clock, scheduler } = ports;
  const proxy = createProxy({
    clock,
    scheduler,
    options: { ...config.timeouts, ...config.limits, tls: readEngineTls(config.engineTls) },
  });
  const http = observe(createControlClient(proxy.httpClient, config));
  const lookups = createControlClient(proxy.lookupClient, config);
  const index = createPrefixIndex({ maxTargets: maxKnownTargets });
  const mesh = createMeshParts({ config, index, release, ...ports });
  const { health, scrape, breaker } = config;
  const bindings = mesh?.replica.bindings ?? createLocalBindings(ports.clock);
  const kvPools = poolTargets(config.kvPools, (key, at) => mesh?.fleetSharing.indexOf(key) ?? asTargetIndex(at));
  const fleet = createFleet({
    ...{ ...ports, http, options: { health, scrape, breaker } },
    adapters: Object.entries(config.models.adapters).map(([name, { model }]) => ({ name, model })),
    ...(mesh ? { sharing: mesh.fleetSharing } : { firstIndex: kvPools.length }),
    ...(scrape.intervalMs === undefined && { metricsEveryMs }),
  });
  const prefix = createPrefixParts({
    ...ports,
    config,
    fleet,
    http,
    lookups,
    index,
    sharing: mesh?.prefixSharing,
    bindings,
    pools: kvPools,
    mayBindEvents,
    // Each engine's health checks have a connection.
    maxEventSockets: () => maxEventSockets(openFiles - fleet.engines.length),
  });
  mesh?.attachFleet(fleet, (slot) => prefix.knowledge.forgetPlacements(asTargetIndex(slot)));
  return { proxy, http, lookups, index, mesh, fleet, prefix, bindings };
}

/** Shared by all attempts at engines. */
function createExchangeParts({ retry }: CompiledConfig, carrier: EngineProxy, { clock, logger, meter }: Ports) {
  return {
    ...{ carrier, logger },
    retryStatuses: new Set([429, ...retry.statuses]),
    attemptMetrics: createAttemptMetrics(meter),
    retryMeters: createRetryMeters(meter),
    retryBudget: createRetryBudget(clock, retry),
  };
}

/** The target selector, and a dry-run one that decides alike without side effects. */
function createSelectors(
  { mesh, prefix, fleet, bindings }: ReturnType<typeof createEngineSide>,
  adapterUse: AdapterUse,
  credits: CopyCredits,
  log: DecisionLog<DescribedDecision>,
  { clock, random, meter }: Ports,
) {
  const trust = createLendTrust(clock, meter);
  const traffic = mesh && createPeerTraffic(clock, mesh.load, (target) => mesh.isOwn(target));
  const sessions = createSessionBindings(bindings);
  const onExcluded = counterBy<string>(
    meter,
    "reason",
    "espalier_excluded_targets_total",
    `Targets excluded from routing decisions, by reason: ${exclusions.join(", ")}, or the name of the policy's filter.`,
  );
  const adapterUseAgeMs = (id: EngineId, adapter: string): number => {
    const engine = fleet.engine(id);
    return engine ? adapterUse.ageMs(engine, adapter) : Number.POSITIVE_INFINITY;
  };
  const parts = { random, knowledge: prefix.knowledge, shared: mesh?.load, trust, adapterUseAgeMs };
  return {
    sessions,
    selector: createTargetSelector({ ...parts, traffic, sessions, credits, log, onExcluded }),
    dryRunSelector: createTargetSelector({
      ...parts,
      traffic: traffic && dryRunTraffic(traffic),
      sessions: dryRunSessions(sessions),
      credits: dryRunCredits(credits),
    }),
  };
}

/**
 * The client for control traffic to engines, with the engines' key if there is one. A pool is known only after an
 * engine has listed its models, and an engine with a key lists them only with that key. So the key is sent only if all
 * pools with a key have the same one.
 */
export function createControlClient(http: HttpClient, { pools }: Pick<CompiledConfig, "pools">): HttpClient {
  const keys = new Set(pools.flatMap(({ engineApiKey }) => (engineApiKey ? [engineApiKey.reveal()] : [])));
  const [key] = keys;
  if (key === undefined || keys.size > 1) return http;
  return (request) => http({ ...request, headers: { authorization: `Bearer ${key}`, ...request.headers } });
}

interface TracingPartsOptions {
  readonly config: TracingConfig;
  /** Distinguishes the routers of one service. */
  readonly instanceId: () => string;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** @returns undefined where nothing is traced */
function createTracingParts({ config, meter, instanceId, ...parts }: TracingPartsOptions): Tracing | undefined {
  const { endpoint, headers, serviceName, sample } = config;
  if (endpoint === undefined) return undefined;
  const revealed = Object.entries(headers).map(([name, secret]) => [name, secret.reveal()] as const);
  return createTracing({
    ...{ ...parts, serviceName, sample },
    createExporter: () => createOtlpExporter({ endpoint, headers: Object.fromEntries(revealed) }),
    instanceId: instanceId(),
    meters: createSpanMeters(meter),
  });
}
