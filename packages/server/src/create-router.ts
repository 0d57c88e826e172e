import type { Server } from "node:http";
import {
  asTargetIndex,
  type Clock,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  startTogether,
  systemClock,
  systemRandom,
  systemScheduler,
} from "@espalier/common";
import { type CompiledConfig, describeConfig } from "@espalier/config";
import { createPrefixIndex } from "@espalier/prefix-index";
import { createProxy } from "@espalier/proxy";
import {
  createFleetLearning,
  createLocalBindings,
  createPeerTraffic,
  createSessionBindings,
  createTargetSelector,
  maxKnownTargets,
  type PeerTraffic,
  quietSessions,
  quietTraffic,
  type SessionBindings,
} from "@espalier/routing";
import { createMetrics } from "@espalier/telemetry";
import { createFleet } from "@espalier/workers";
import { createAdapterLoader } from "./adapters/adapter-loader.ts";
import { createAdapterUse } from "./adapters/adapter-use.ts";
import { createAdminApp } from "./admin/admin-app.ts";
import { createAdmissionParts } from "./admission/admission-parts.ts";
import { createControlClient } from "./control-client.ts";
import { createDataPlaneApp } from "./data-plane/data-plane-app.ts";
import type { Readiness } from "./data-plane/probe-routes.ts";
import { createRequestMetrics } from "./data-plane/request-metrics.ts";
import type { RouterContext } from "./data-plane/router-context.ts";
import { createStoredResponses } from "./data-plane/stored-responses.ts";
import { createSplitParts } from "./disaggregation/split-parts.ts";
import { explainRequest } from "./explain/explain-request.ts";
import { createDrain, type Drain } from "./lifecycle/drain.ts";
import { createEngineSources } from "./lifecycle/engine-sources.ts";
import { createListener } from "./lifecycle/listener.ts";
import { createMeshParts } from "./mesh/mesh-parts.ts";
import { poolTargets } from "./prefix/pool-targets.ts";
import { createPrefixParts } from "./prefix/prefix-parts.ts";
import { dataPlaneSettings, fleetOptions, listenerSettings, proxyOptions, readTls } from "./router-options.ts";
import { createModelRouter } from "./routing/model-router.ts";
import { poolRules } from "./routing/pool-rules.ts";
import { createPools } from "./routing/pools.ts";

/** What a router is built of. The ports are those of the running process unless given. */
export interface RouterDependencies {
  readonly config: CompiledConfig;
  readonly logger: Logger;
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
  readonly random?: Random;
}

/** One router: its engines, its two listeners, and its end. */
export interface Router extends Startable {
  /** Where clients are served; empty before the start. */
  readonly url: string;
  /** Where operators are served; empty before the start. */
  readonly adminUrl: string;
  /** Where other routers reach it; null when it shares nothing, or not this way. Known after the start. */
  readonly meshAddress: string | null;
  readonly readiness: () => Readiness;
  /** Ends the answering gracefully; `stop` then releases the rest. */
  readonly drain: Drain;
}

/** Responses whose engine is remembered. */
const storedResponseCapacity = 100_000;

/**
 * Builds a router of a compiled configuration. Nothing listens or dials before `start`.
 *
 * @throws EspalierError `config_invalid` or `config_unreadable`
 * @example
 * const config = loadConfig({ flags: { "--engine": ["http://127.0.0.1:8000"] } });
 * const router = createRouter({ config, logger: silentLogger });
 * await router.start();
 */
export function createRouter(dependencies: RouterDependencies): Router {
  const { config, logger } = dependencies;
  const metrics = createMetrics();
  const context = createContext(dependencies, metrics.meter, () => [data.app.server]);
  const { fleet, drain, inFlight, proxy, prefix, mesh, learning } = context;
  const readiness = (): Readiness => readinessOf(context);

  const data = createListener(createDataPlaneApp(context, listenerSettings(config), readiness), config.listen);
  const adminApp = createAdminApp({
    fleet,
    logger,
    readiness,
    renderMetrics: () => metrics.render(),
    status: () => ({
      ...readiness(),
      draining: drain.started,
      inFlight: inFlight.count,
      engines: fleet.engines.length,
      usableEngines: fleet.usableCount(),
      models: fleet.models().map((model) => model.id),
      mesh: mesh?.describe() ?? null,
    }),
    mesh: () => mesh?.describe(),
    dutyOf: context.split.dutyOf,
    describeConfig: () => describeConfig(config),
    feeds: () => prefix.feeds?.describe() ?? [],
    explain: (request, endpoint) => explainRequest(context, request, endpoint),
    maxExplainedBytes: config.limits.maxBodyBytes,
    tls: config.admin.tls && readTls(config.admin.tls),
    keySha256: config.admin.keySha256,
  });
  mesh?.serveDocuments(adminApp.server, config.admin.keySha256);
  const admin = createListener(adminApp, config.admin);
  const sources = createEngineSources(config, fleet, logger);
  fleet.onChange((change, engine) => {
    if (change === "gone") proxy.drop(engine.url);
  });
  return {
    ...startTogether([proxy, ...(mesh ? [mesh] : []), learning, prefix, fleet, sources, admin, data]),
    get url() {
      return data.url;
    },
    get adminUrl() {
      return admin.url;
    },
    get meshAddress() {
      return mesh?.address ?? null;
    },
    readiness,
    drain,
  };
}

/** Wires the parts of a router that its routes work with. */
export function createContext(
  { config, logger, clock = systemClock, scheduler = systemScheduler, random = systemRandom }: RouterDependencies,
  meter: Meter,
  servers: () => readonly Server[],
): RouterContext {
  const proxy = createProxy({ clock, scheduler, logger, meter, options: proxyOptions(config) });
  const http = createControlClient(proxy.httpClient, config);
  const inFlight = { count: 0 };
  const index = createPrefixIndex({ maxTargets: maxKnownTargets });
  const mesh = createMeshParts({ config, index, clock, scheduler, random, logger, meter });
  const pools = poolTargets(config.kvPools, (key, at) => mesh?.fleetSharing.indexOf(key) ?? asTargetIndex(at));
  const fleet = createFleet({
    ...{ clock, scheduler, random, http, logger, meter, options: fleetOptions(config) },
    adapters: Object.entries(config.models.adapters).map(([name, { model }]) => ({ name, model })),
    ...(mesh ? { sharing: mesh.fleetSharing } : { firstIndex: pools.length }),
  });
  const sharing = mesh?.prefixSharing;
  const prefix = createPrefixParts({
    ...{ config, fleet, http, index, sharing, pools },
    ...{ clock, scheduler, random, logger, meter },
  });
  mesh?.attachFleet(fleet, (slot) => prefix.knowledge.forgetPlacements(asTargetIndex(slot)));
  const traffic = mesh && createPeerTraffic(clock, mesh.load, (target) => mesh.isOwn(target));
  const sessions = createSessionBindings(mesh?.replica.bindings ?? createLocalBindings(clock));
  const adapterUse = createAdapterUse({ clock, scheduler, random, shared: mesh?.replica.bindings });
  const learning = createFleetLearning({ board: mesh?.replica.notes, clock, scheduler, meter });
  const createSelector = (of: PeerTraffic | undefined, bindings: SessionBindings) =>
    createTargetSelector(random, prefix.knowledge, mesh?.load, of, bindings);
  return {
    clock,
    random,
    logger,
    settings: dataPlaneSettings(config),
    fleet,
    prefix,
    split: createSplitParts({ config, clock, http, fleet, meter, board: mesh?.replica.notes }),
    proxy,
    modelRouter: createModelRouter(config.models, random),
    adapterUse,
    adapterLoader: createAdapterLoader({ ...config.models, use: adapterUse, fleet, http, clock, logger, meter }),
    pools: createPools(poolRules(config), (model) => learning.workOf(model)),
    learning,
    mesh,
    selector: createSelector(traffic, sessions),
    admission: createAdmissionParts({
      ...{ config: config.admission, clock, scheduler, meter },
      ...{ others: mesh?.load, usage: mesh?.replica.usage },
    }),
    quietSelector: createSelector(traffic && quietTraffic(traffic), quietSessions(sessions)),
    metrics: createRequestMetrics(meter),
    storedResponses: createStoredResponses(storedResponseCapacity, mesh?.replica.bindings),
    drain: createDrain({
      ...{ clock, scheduler, logger, servers, activeCount: () => inFlight.count },
      onStart: () => mesh?.setDraining(),
    }),
    inFlight,
  };
}

function readinessOf({ fleet, drain, mesh }: RouterContext): Readiness {
  const reasons: string[] = [];
  if (drain.started) reasons.push("the router is draining");
  if (fleet.engines.length === 0) reasons.push("no engine is known");
  else if (fleet.usableCount() === 0) reasons.push("no engine is usable");
  reasons.push(...(mesh?.waitingFor ?? []));
  return { ready: reasons.length === 0, reasons };
}
