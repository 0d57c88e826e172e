import type { EngineSpec, Logger, Meter, Random, Scheduler, Startable } from "@espalier/common";
import { type CompiledConfig, type DiscoveryConfig, parseEnginesFile } from "@espalier/config";
import {
  createDnsSource,
  createFileSource,
  createInferencePoolSource,
  createKubernetesClient,
  createListSource,
  createPodSource,
  createServiceSource,
  type EngineSource,
  type KubernetesClient,
  type KubernetesPorts,
  mergeSources,
} from "@espalier/discovery";
import { createControlHttp } from "@espalier/proxy";
import type { Fleet } from "@espalier/workers";
import type { OperatorTable } from "./operator-engines.ts";
import { createOperatorEngines, type OperatorEngines } from "./operator-engines.ts";

const metricNames = { up: "espalier_discovery_source_up", failures: "espalier_discovery_failures_total" };

interface EngineSourcesDeps extends SourceSetDeps {
  readonly config: SourceConfig & Pick<CompiledConfig, "enginesFile">;
  /** Engines that operators added or removed. */
  readonly table: OperatorTable;
  readonly fleet: Pick<Fleet, "apply">;
  readonly meter: Meter;
}

export interface EngineSources extends Startable {
  /** For operators who add and remove engines. */
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  /**
   * Follows the engines and sources of another configuration. The engines file stays that of the start.
   *
   * @returns resolves when they are in effect; never rejects
   */
  follow(config: SourceConfig): Promise<void>;
}

/**
 * Feeds the fleet from the configured list of engines, the engines file, discovery sources and operators, except
 * engines that operators removed.
 */
export function createEngineSources(deps: EngineSourcesDeps): EngineSources {
  const { config, fleet, logger } = deps;
  const { enginesFile: path } = config;
  let listed: readonly EngineSpec[] = [];
  const operators = createOperatorEngines({ table: deps.table, listed: () => listed, logger });
  const file = path === undefined ? [] : [createFileSource({ path, parse: parseEnginesFile, logger })];
  const setOf = createSourceSets(deps);
  const sourcesOf = (said: SourceConfig): readonly EngineSource[] => {
    const set = setOf(said);
    return [set.listed, ...file, ...set.discovered, operators.source];
  };
  const meters = createSourceMeters(deps.meter, metricNames, "engines");
  const named = deps.meter
    .gauge({ name: "espalier_discovery_engines", help: "Distinct engines named by all sources." })
    .series();
  const merged = mergeSources(sourcesOf(config), {
    onList(specs: readonly EngineSpec[]) {
      listed = specs;
      const present = operators.present(listed);
      named.set(present.length);
      fleet.apply(present);
    },
    onError(error, source) {
      meters.failed(source);
      meters.isUp(source, false);
      // A source that does not answer may recover by itself; a wrong configuration cannot.
      const level = error.code === "discovery_failed" ? "warn" : "error";
      logger[level]("engine source failed; the last good list stays", { source, error });
    },
    onConflict: (error, source) => logger.error("conflicting engine ignored", { source, error }),
    onRecovered(source) {
      meters.isUp(source, true);
      logger.info("engine source is followed again", { source });
    },
    onFollowed: (source) => meters.isUp(source, true),
    onLeft: meters.left,
  });
  return {
    operators,
    start: () => merged.start(),
    follow: (said) => merged.follow(sourcesOf(said)),
    stop: () => merged.stop(),
  };
}

/** A client of the configured Kubernetes API server. It connects with its first request. */
export function connectKubernetes(
  { kubernetes: access }: Pick<DiscoveryConfig, "kubernetes">,
  scheduler: Scheduler,
): KubernetesClient {
  return createKubernetesClient({
    access,
    connect: (ca) => createControlHttp({ scheduler, ...(ca === undefined ? {} : { tls: { ca } }) }),
  });
}

/** Metrics of discovery sources. Their number is bounded by the configuration. */
export interface SourceMeters {
  isUp(source: string, up: boolean): void;
  failed(source: string): void;
  /** The source is no longer followed. */
  left(source: string): void;
}

/** @param what what a source finds, for the help texts */
export function createSourceMeters(
  meter: Meter,
  names: { readonly up: string; readonly failures: string },
  what: string,
): SourceMeters {
  const up = meter.gauge({
    name: names.up,
    help: `Whether a source of ${what} is up: 1, or 0 while its last good list stays in use.`,
    labels: ["source"],
  });
  const failures = meter.counter({
    name: names.failures,
    help: `Outages of a source of ${what}, each counted once.`,
    labels: ["source"],
  });
  return {
    isUp: (source, isUp) => up.series(source).set(isUp ? 1 : 0),
    failed: (source) => failures.series(source).add(),
    left(source) {
      up.remove(source);
      failures.remove(source);
    },
  };
}

/** The part of a configuration that names sources and may change in a reload. */
type SourceConfig = Pick<CompiledConfig, "engines" | "discovery">;

interface SourceSet {
  readonly listed: EngineSource;
  readonly discovered: readonly EngineSource[];
}

interface SourceSetDeps {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
}

/** Sources of successive configurations. A source whose settings are unchanged is kept. */
function createSourceSets(deps: SourceSetDeps): (config: SourceConfig) => SourceSet {
  let known = new Map<string, EngineSource>();
  return ({ engines, discovery }) => {
    const next = new Map<string, EngineSource>();
    const take = (kind: string, said: unknown, create: () => EngineSource): EngineSource => {
      const key = `${kind} ${JSON.stringify(said)}`;
      const source = known.get(key) ?? create();
      next.set(key, source);
      return source;
    };
    const listed = take("engines", engines, () => createListSource(engines));
    const discovered = [
      ...discovery.dns.map((options) => take("dns", options, () => createDnsSource({ ...options, ...deps }))),
      ...kubernetesSources(discovery, deps, take),
    ];
    known = next;
    return { listed, discovered };
  };
}

function kubernetesSources(
  discovery: DiscoveryConfig,
  deps: SourceSetDeps,
  take: (kind: string, said: unknown, create: () => EngineSource) => EngineSource,
): EngineSource[] {
  const { services, pods, inferencePools, kubernetes: access } = discovery;
  const { logger } = deps;
  const following = (create: (ports: KubernetesPorts) => EngineSource): EngineSource =>
    withClient(discovery, deps, create);
  return [
    ...services.map((options) =>
      take("service", [options, access], () =>
        following((ports) => createServiceSource(ports, { ...options, logger })),
      ),
    ),
    ...pods.map((options) =>
      take("pods", [options, access], () => following((ports) => createPodSource(ports, { ...options, logger }))),
    ),
    ...inferencePools.map((options) =>
      take("pool", [options, access], () =>
        following((ports) => createInferencePoolSource(ports, { ...options, logger })),
      ),
    ),
  ];
}

/** A source with its own client of the API server, which is closed with it. */
function withClient(
  discovery: DiscoveryConfig,
  { scheduler, random }: SourceSetDeps,
  create: (ports: KubernetesPorts) => EngineSource,
): EngineSource {
  const client = connectKubernetes(discovery, scheduler);
  const source = create({ client, scheduler, random });
  return {
    name: source.name,
    start: (observer) => source.start(observer),
    async stop() {
      await source.stop();
      client.close();
    },
  };
}
