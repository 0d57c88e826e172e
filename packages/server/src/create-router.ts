import type { Server } from "node:http";
import {
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
} from "@espalier/core";
import { areAsleep, type Fleet } from "@espalier/engines";
import type { CustomPolicies } from "@espalier/policies";
import { createAdminApp } from "./admin/admin-app.ts";
import { createDashboardParts, type DashboardPage } from "./admin/dashboard.ts";
import { explainRequest } from "./admin/explain-request.ts";
import { type PickerAddresses, statusOf } from "./admin/router-status.ts";
import { type CompiledConfig, describeConfig } from "./config/index.ts";
import { createContext } from "./create-context.ts";
import { createDataPlaneApp } from "./data-plane/data-plane-app.ts";
import { createPastDecisions } from "./decisions/past-decisions.ts";
import { createEndpointPicker } from "./endpoint-picker/picker-parts.ts";
import type { Auth } from "./extensions/auth.ts";
import type { Hooks } from "./extensions/hooks.ts";
import { createRouterCertificates, readTls } from "./lifecycle/certificates.ts";
import type { Drain } from "./lifecycle/drain.ts";
import { createConnectionLimit, createListener } from "./lifecycle/listener.ts";
import type { Readiness } from "./lifecycle/readiness.ts";
import { createReadyGauge, readyWithinMs, untilReady } from "./lifecycle/readiness.ts";
import type { ConfigSource, Reloader, ReloadOutcome } from "./lifecycle/reloader.ts";
import { createRolloutsFront, whileServing } from "./rollouts/rollouts-front.ts";
import type { RouterContext } from "./router-context.ts";
import { createScaleParts } from "./scale/scale-parts.ts";
import { createMetrics, type Metrics } from "./telemetry/index.ts";
import { createWarmUp, type WarmUp } from "./warm-up.ts";

/** Most connections of operators, scrapers and dashboards. */
const maxAdminConnections = 1_024;

/** Dependencies of a router. The ports default to those of the running process. */
export interface RouterDependencies {
  readonly config: CompiledConfig;
  /** Where reloads read the configuration; without it the configuration never changes. */
  readonly configSource?: ConfigSource;
  /** Called with the configuration in force after each successful reload. */
  readonly onReload?: (config: CompiledConfig) => void;
  readonly logger: Logger;
  /** Subscribes to the number of lines that the logger drops, for the metrics. */
  readonly onDroppedLogLines?: (listener: (lines: number) => void) => unknown;
  /** Policies of yours, which `policy` and `pools` may name; `loadConfig` has to know their names. */
  readonly policies?: CustomPolicies;
  readonly hooks?: Hooks | readonly Hooks[];
  /** Decides who may ask, in place of `api-keys`. */
  readonly auth?: Auth;
  /** The other processes of a group that shares the clients' port. */
  readonly group?: RouterGroup;
  /** Most files and sockets the process may have open at once. No limit by default. */
  readonly openFiles?: number;
  /**
   * Whether clients can use other routers. If so, this one accepts clients only when it is ready, or after 10 s. It
   * does not wait while it knows no engine.
   */
  readonly hasOthers?: boolean;
  /** Most milliseconds of warm-up before the router reports ready; 0, the default, disables it. */
  readonly warmUpMs?: number;
  /** The version that the status reports, and that routers of a mesh tell each other. */
  readonly version?: string;
  /** Page served at `/dashboard/`, for instance that of `@espalier/dashboard`; none when absent. */
  readonly dashboard?: DashboardPage;
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
  readonly random?: Random;
}

/** The other processes that share the clients' port with a router (`node:cluster`). */
export interface RouterGroup {
  /** What this router's readiness waits for in the group, as sentences. */
  waitingFor(): readonly string[];
  /** Called when an operator asks this router for a reload: then all processes reload. */
  reloadAsked(): void;
  /** Whether the others are serving, so that this router accepts clients only when it is ready. */
  readonly isServing: boolean;
}

/** One router: its engines, its two listeners, and its shutdown. */
export interface Router extends Startable {
  /** URL for clients; empty before the start. */
  readonly url: string;
  /** URL for operators; empty before the start. */
  readonly adminUrl: string;
  /** URL for RL frameworks; null without `rollouts.port`, and empty before the start. */
  readonly rolloutsUrl: string | null;
  /** Its address in the mesh; null without one. Known after the start. */
  readonly meshAddress: string | null;
  /** Where gateways reach it as their endpoint picker; null when it is none. Known after the start. */
  readonly picker: PickerAddresses | null;
  /** `host:port` at which KEDA asks how many engines are wanted; null when it cannot. Known after the start. */
  readonly scalerAddress: string | null;
  readonly readiness: () => Readiness;
  /** The configuration in force. */
  readonly config: CompiledConfig;
  readonly reload: Reloader["reload"];
  /** Ends serving gracefully; `stop` then releases the rest. */
  readonly drain: Drain;
}

/**
 * Builds a router of a compiled configuration. Nothing listens or dials before `start`. Modules that the configuration
 * names under `plugins` are loaded by `loadPlugins`, whose result has `policies` and `hooks`.
 *
 * @throws EspalierError `config_invalid` or `config_unreadable`
 * @example
 * const config = loadConfig({ flags: { "--engine": ["http://127.0.0.1:8000"] } });
 * const router = createRouter({ config, logger: silentLogger });
 * await router.start();
 */
export function createRouter(dependencies: RouterDependencies): Router {
  const { config, logger, group, clock = systemClock, scheduler = systemScheduler } = dependencies;
  const metrics = createMetrics();
  const context = createContext(dependencies, metrics.meter, {
    servers: () => [data, rollouts].flatMap((listener) => listener?.app.server ?? []),
    closePicker: () => picker?.drain(),
  });
  const { fleet, drain, proxy, prefix, mesh, learning, credits, live, reloader, sources, tracing, overload, overflow } =
    context;
  const warmUp = createWarmUp({
    ...{
      config,
      clock,
      scheduler,
      random: dependencies.random ?? systemRandom,
      budgetMs: dependencies.warmUpMs ?? 0,
    },
  });
  const readiness = (): Readiness => readinessOf(context, warmUp, group);
  const reload: Reloader["reload"] = (trigger) => {
    certificates.reload();
    return reloader.reload(trigger);
  };

  const dataApp = createDataPlaneApp(context, readiness);
  const data = createListener(dataApp, { setting: "listen.port", ...config.listen, isShared: true });
  const rollouts = createRollouts(context, config, metrics.meter);
  const dashboard = createDashboardParts({
    ...{ config, context, readiness, clock, scheduler, logger, meter: metrics.meter },
    page: dependencies.dashboard,
    adminUrl: () => admin.url,
  });
  const picker =
    config.endpointPicker &&
    createEndpointPicker({
      ...{ settings: config.endpointPicker, config, context, logger, meter: metrics.meter },
      isReady: () => readiness().ready,
    });
  const pickerAddresses = (): PickerAddresses | null =>
    picker ? { address: picker.address, healthAddress: picker.healthAddress } : null;
  const past = createPastDecisions({
    ...{ log: context.decisionLog, router: mesh?.replica.ports.origin.router ?? null, notes: mesh?.replica.notes },
    ...{ members: () => mesh?.members() ?? [], random: context.random, scheduler },
  });
  const scale = createScaleParts(config.scale, context, metrics.meter);
  const adminApp = createAdminApp({
    ...{ fleet, logger, readiness, operators: context.operators, moveStreams: context.moveStreams },
    renderMetrics: createMetricsPage(metrics, readiness),
    status: () =>
      statusOf(context, readiness(), {
        picker: pickerAddresses(),
        url: data.url,
        version: dependencies.version ?? null,
        peers: dashboard.peers(),
      }),
    mesh: () => mesh?.describe(),
    assignedRoleOf: context.split.assignedRoleOf,
    scale: scale.describe,
    describeConfig: () => describeConfig(live.current),
    reload: () => tellGroup(group, () => reload("admin")),
    feeds: () => prefix.feeds?.describe() ?? [],
    dashboard,
    explain: (request, endpoint) => explainRequest(context, request, endpoint),
    past,
    programs: context.programs.report,
    maxExplainedBytes: config.limits.maxBodyBytes,
    tls: config.admin.tls && readTls(config.admin.tls),
    keySha256: config.admin.keySha256,
  });
  dashboard.serveDocuments(adminApp.server);
  context.connections.watch(dataApp.server, config.listen.tls !== undefined);
  if (rollouts) context.connections.watch(rollouts.app.server, config.rollouts?.tls !== undefined);
  boundOperators(context, dependencies, metrics.meter, adminApp.server);
  const admin = createListener(adminApp, { setting: "admin.port", ...config.admin, isShared: false });
  const certificates = createRouterCertificates({
    ...{
      config,
      data: data.app,
      admin: adminApp,
      rollouts: rollouts?.app,
      mesh,
      picker,
      scaler: scale.scaler,
      logger,
      scheduler,
      meter: metrics.meter,
    },
    setEngineTls: proxy.setTls,
  });
  fleet.onChange((change, engine) => {
    if (change === "gone") proxy.drop(engine.url);
  });
  return {
    ...startTogether([
      // The first to start is the last to stop: by then every request has ended.
      ...(tracing ? [tracing] : []),
      ...[proxy, ...(mesh ? [mesh] : []), learning, credits, prefix, fleet, sources, reloader, overload],
      ...(overflow.backends.length > 0 ? [overflow] : []),
      context.largeBodies,
      ...[
        admin,
        past,
        context.programs,
        dashboard,
        warmUp,
        ...untilServing(dependencies, context, warmUp, scheduler),
        data,
      ],
      ...(rollouts ? [rollouts] : []),
      ...[...(picker ? [picker] : []), scale, certificates],
    ]),
    get url() {
      return data.url;
    },
    get adminUrl() {
      return admin.url;
    },
    get rolloutsUrl() {
      return rollouts?.url ?? null;
    },
    get meshAddress() {
      return mesh?.address ?? null;
    },
    get picker() {
      return pickerAddresses();
    },
    get config() {
      return live.current;
    },
    get scalerAddress() {
      return scale.scaler?.address ?? null;
    },
    readiness,
    reload,
    drain,
  };
}

/** The listener for RL frameworks. */
function createRollouts(context: RouterContext, { rollouts: settings }: CompiledConfig, meter: Meter) {
  if (!settings) return undefined;
  const front = createRolloutsFront({ settings, context, meter });
  const app = createDataPlaneApp(context, () => whileServing(context), front);
  return createListener(app, { setting: "rollouts.port", ...settings, isShared: true });
}

/** Delays the listener until the router is ready, if clients can go elsewhere meanwhile. */
function untilServing(
  { group, hasOthers, logger }: RouterDependencies,
  context: RouterContext,
  warmUp: WarmUp,
  scheduler: Scheduler,
): readonly Startable[] {
  if (!group?.isServing && !hasOthers) return [];
  const readiness = (): Readiness => readinessOf(context, warmUp, undefined);
  const part = untilReady(() => context.fleet.engines.length === 0 || readiness().ready, scheduler);
  const start = (): Promise<void> => {
    logger.info("client listener opens when this router is ready", { withinMs: readyWithinMs, ...readiness() });
    return part.start();
  };
  return [{ start, stop: part.stop }];
}

/** The ready gauge is updated at each scrape. */
function createMetricsPage(metrics: Metrics, readiness: () => Readiness): Metrics["render"] {
  const ready = createReadyGauge(metrics.meter);
  return () => {
    ready.set(readiness().ready ? 1 : 0);
    return metrics.render();
  };
}

function boundOperators(context: RouterContext, { config }: RouterDependencies, meter: Meter, server: Server): void {
  const max = () => Math.min(maxAdminConnections, context.descriptors.operators);
  const limit = createConnectionLimit({
    ...{ listener: "operators", max, maxRejected: () => 0, meter, logger: context.logger },
  });
  limit.watch(server, config.admin.tls !== undefined);
}

/** When one process of a group is asked to reload, all processes reload. */
function tellGroup(group: RouterGroup | undefined, reload: () => ReloadOutcome): ReloadOutcome {
  group?.reloadAsked();
  return reload();
}

function whyNoneIsUsable({ engines }: Fleet): string {
  if (engines.length === 0) return "no engines known";
  return areAsleep(engines.flatMap(({ targets }) => targets)) ? "all engines are asleep" : "no engine is usable";
}

function readinessOf(
  { fleet, drain, mesh, prefix, pools, overflow }: RouterContext,
  warmUp: WarmUp,
  group: RouterGroup | undefined,
): Readiness {
  const reasons: string[] = [];
  if (!warmUp.isOver) reasons.push("the router is warming up");
  if (drain.started) reasons.push("the router is draining");
  // Requests that wait for a first engine, or that others answer, have to reach a router.
  if (fleet.usableCount() === 0 && !pools.hasHeld && overflow.backends.length === 0) {
    reasons.push(whyNoneIsUsable(fleet));
  }
  reasons.push(...(mesh?.waitingFor ?? []), ...prefix.reader.waitingFor, ...(group?.waitingFor() ?? []));
  return { ready: reasons.length === 0, reasons };
}
