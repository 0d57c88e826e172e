import type { Server } from "node:http";
import { asTargetIndex, type Meter, silentTracer, systemClock, systemRandom, systemScheduler } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import { watchFile } from "@espalier/discovery";
import { createPrefixIndex } from "@espalier/prefix-index";
import { createProxy, type Proxy as EngineProxy } from "@espalier/proxy";
import {
  type CopyRents,
  createFleetLearning,
  createLocalBindings,
  createPeerTraffic,
  createRetryBudget,
  createRetryMeters,
  createSessionBindings,
  createSharedRents,
  createTargetSelector,
  maxKnownTargets,
  type PeerTraffic,
  quietRents,
  quietSessions,
  quietTraffic,
  type SessionBindings,
} from "@espalier/routing";
import type { Tracing } from "@espalier/tracing";
import { createFleet } from "@espalier/workers";
import { createAdapterLoader } from "./adapters/adapter-loader.ts";
import { createAdapterUse } from "./adapters/adapter-use.ts";
import { createAdmissionParts } from "./admission/admission-parts.ts";
import { watchMemory } from "./admission/memory-watch.ts";
import { createControlClient } from "./control-client.ts";
import type { RouterDependencies } from "./create-router.ts";
import { createDecisionFeed } from "./dashboard/decision-feed.ts";
import { createRequestMetrics } from "./data-plane/request-metrics.ts";
import { createResponseFinder } from "./data-plane/response-finder.ts";
import type { RouterContext } from "./data-plane/router-context.ts";
import { createStoredResponses } from "./data-plane/stored-responses.ts";
import { createSplitParts } from "./disaggregation/split-parts.ts";
import { createLargeBodies } from "./large-bodies/large-bodies.ts";
import { createConnectionLimit } from "./lifecycle/connection-limit.ts";
import { shareDescriptors } from "./lifecycle/descriptor-shares.ts";
import { createDrain } from "./lifecycle/drain.ts";
import { createEngineSources, type EngineSources } from "./lifecycle/engine-sources.ts";
import { createLiveConfig } from "./lifecycle/live-config.ts";
import { createOverload } from "./lifecycle/overload.ts";
import { createReloader, type Reloader } from "./lifecycle/reloader.ts";
import { createMeshParts } from "./mesh/mesh-parts.ts";
import { routerIdOf } from "./mesh/router-identity.ts";
import { createLocalBoard, createSharedBoard } from "./operator/engine-board.ts";
import { poolTargets } from "./prefix/pool-targets.ts";
import { createPrefixParts } from "./prefix/prefix-parts.ts";
import { createRelayMetrics } from "./request/relay-metrics.ts";
import { fleetOptions, proxyOptions } from "./router-options.ts";
import { poolRules } from "./routing/pool-rules.ts";
import { createPools, type Pools } from "./routing/pools.ts";
import { createTracingParts } from "./tracing/tracing-parts.ts";

/** Connections of clients beyond the bound that are told so. */
const toldConnections = 256;
/** Responses whose engine is remembered. */
const storedResponseCapacity = 100_000;

export interface RouterParts extends RouterContext {
  readonly sources: EngineSources;
  readonly reloader: Reloader;
  /** Undefined where nothing is traced. */
  readonly tracing: Tracing | undefined;
}

/** The ports of the running process, and how what it counts is told. */
interface Ports extends Required<Pick<RouterDependencies, "clock" | "scheduler" | "random" | "logger">> {
  readonly meter: Meter;
}

/**
 * Wires the parts of a router. Nothing runs before they are started.
 *
 * @param servers the listeners that a drain closes
 */
export function createContext(
  dependencies: RouterDependencies,
  meter: Meter,
  servers: () => readonly Server[],
): RouterParts {
  const { config, configSource, onReload, logger } = dependencies;
  const { clock = systemClock, scheduler = systemScheduler, random = systemRandom } = dependencies;
  const ports: Ports = { clock, scheduler, random, logger, meter };
  const pools = createPools(poolRules(config), (model) => learning.workOf(model));
  const engineSide = createEngineSide(config, ports, pools);
  const { proxy, http, lookups, index, mesh, fleet, prefix } = engineSide;
  const descriptors = shareDescriptors(dependencies.openFiles ?? Number.POSITIVE_INFINITY);
  const inFlight = { count: 0, bodyBytes: 0 };
  const learning = createFleetLearning({ board: mesh?.replica.notes, clock, scheduler, meter });
  const rents = createSharedRents({ board: mesh?.replica.notes, clock, scheduler, meter });
  const board = mesh ? createSharedBoard(mesh.replica.registry) : createLocalBoard();
  const sources = createEngineSources({ ...ports, config, board, fleet });
  const onChange = (now: CompiledConfig): void => {
    mesh?.setSecrets(now.mesh);
    void sources.follow(now);
    onReload?.(now);
  };
  const live = createLiveConfig({ config, random, pools, onChange });
  const adapterUse = createAdapterUse({ clock, scheduler, random, shared: mesh?.replica.bindings });
  const instanceId = (): string => mesh?.describe().router ?? routerIdOf(config.mesh, random);
  const tracing = createTracingParts({ ...ports, config: config.tracing, instanceId });
  const selectors = createSelectors(engineSide, rents, ports);
  return {
    ...{ tracing, tracer: tracing ?? silentTracer, sources },
    ...{ clock, random, scheduler, logger, live, inFlight, descriptors, pools, adapterUse, learning, rents },
    ...{ fleet, prefix, index, proxy, mesh },
    ...selectors,
    reloader: createReloader({
      ...{ source: configSource, clock, logger, meter },
      apply: live.apply,
      isBlank: () => live.current.isFileBlank,
      watch: (path, onChange) => watchFile({ path, logger, scheduler }, onChange),
    }),
    split: createSplitParts({ config, clock, http, fleet, meter, ...selectors, board: mesh?.replica.notes }),
    relay: createRelayParts(config, proxy, ports),
    adapterLoader: createAdapterLoader({ ...config.models, use: adapterUse, fleet, http, clock, logger, meter }),
    admission: createAdmissionParts({
      ...{ config: config.admission, clock, scheduler, meter },
      ...{ others: mesh?.load, usage: mesh?.replica.usage },
    }),
    overload: createOverload({
      ...{ clock, scheduler, logger, meter, limits: () => live.current.limits },
      bodyBytes: () => inFlight.bodyBytes,
      meshBytes: () => mesh?.bufferedBytes ?? 0,
    }),
    largeBodies: createLargeBodies({ scheduler, logger }),
    connections: createConnectionLimit({
      ...{ listener: "clients", meter, logger, told: Math.min(toldConnections, descriptors.told) },
      max: () => Math.min(live.current.limits.maxConnections, descriptors.clients),
    }),
    memory: watchMemory({ config: config.admission, clock, index, standingOf: prefix.standingOf }),
    metrics: createRequestMetrics(meter),
    decisions: createDecisionFeed({ clock, scheduler, seed: config.prefix.seed }),
    storedResponses: createStoredResponses(storedResponseCapacity, mesh?.replica.bindings),
    responseFinder: createResponseFinder({ fleet, pools, http: lookups, clock }),
    drain: createDrain({
      ...{ clock, scheduler, logger, servers, activeCount: () => inFlight.count },
      onStart: () => mesh?.setDraining(),
    }),
  };
}

/** What knows engines, and what of them is shared with other routers. */
function createEngineSide(config: CompiledConfig, ports: Ports, { metricsEveryMs }: Pick<Pools, "metricsEveryMs">) {
  const { clock, scheduler } = ports;
  const proxy = createProxy({ clock, scheduler, options: proxyOptions(config) });
  const http = createControlClient(proxy.httpClient, config);
  const lookups = createControlClient(proxy.lookupClient, config);
  const index = createPrefixIndex({ maxTargets: maxKnownTargets });
  const mesh = createMeshParts({ config, index, ...ports });
  const kvPools = poolTargets(config.kvPools, (key, at) => mesh?.fleetSharing.indexOf(key) ?? asTargetIndex(at));
  const fleet = createFleet({
    ...{ ...ports, http, options: fleetOptions(config) },
    adapters: Object.entries(config.models.adapters).map(([name, { model }]) => ({ name, model })),
    ...(mesh ? { sharing: mesh.fleetSharing } : { firstIndex: kvPools.length }),
    ...(config.scrape.intervalMs === undefined && { metricsEveryMs }),
  });
  const prefix = createPrefixParts({
    ...ports,
    config,
    fleet,
    http,
    lookups,
    index,
    sharing: mesh?.prefixSharing,
    pools: kvPools,
  });
  mesh?.attachFleet(fleet, (slot) => prefix.knowledge.forgetPlacements(asTargetIndex(slot)));
  return { proxy, http, lookups, index, mesh, fleet, prefix };
}

/** What requests share on their way to engines. */
function createRelayParts({ retry }: CompiledConfig, proxy: EngineProxy, { clock, logger, meter }: Ports) {
  return {
    ...{ proxy, logger, retryStatuses: new Set([429, ...retry.statuses]) },
    relayMetrics: createRelayMetrics(meter),
    retryMeters: createRetryMeters(meter),
    retryBudget: createRetryBudget(clock, retry),
  };
}

/** What decides of requests, and what decides alike of requests that are not sent. */
function createSelectors(
  { mesh, prefix }: ReturnType<typeof createEngineSide>,
  rents: CopyRents,
  { clock, random }: Ports,
) {
  const traffic = mesh && createPeerTraffic(clock, mesh.load, (target) => mesh.isOwn(target));
  const sessions = createSessionBindings(mesh?.replica.bindings ?? createLocalBindings(clock));
  const create = (of: PeerTraffic | undefined, bindings: SessionBindings, copies: CopyRents) =>
    createTargetSelector(random, prefix.knowledge, mesh?.load, of, bindings, copies);
  return {
    selector: create(traffic, sessions, rents),
    quietSelector: create(traffic && quietTraffic(traffic), quietSessions(sessions), quietRents(rents)),
  };
}
