import {
  type EngineSpec,
  gaugeOf,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
} from "@espalier/core";
import type { Fleet } from "@espalier/engines";
import {
  createControlHttp,
  createDnsSource,
  createFileSource,
  createInferenceObjectSource,
  createInferencePoolSource,
  createInferenceTables,
  createKubernetesClient,
  createListSource,
  createPodSource,
  createServiceSource,
  type EngineSource,
  type InferenceObject,
  type InferenceTables,
  type KubernetesClient,
  type KubernetesPorts,
  type MergeObserver,
  mergeSources,
  type Source,
} from "@espalier/engines";
import { type CompiledConfig, type DiscoveryConfig, parseEnginesFile } from "../config/index.ts";
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
  /** What Kubernetes says about the requests to the inference pools that are followed. */
  readonly requestTables: InferenceTables;
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
  const meters = createSourceMeters(deps.meter, metricNames, "engines or inference objects");
  const named = gaugeOf(deps.meter, "espalier_discovery_engines", "Distinct engines of all sources.");
  const requestTables = createInferenceTables();
  reportTables(requestTables, deps);
  const first = setOf(config);
  const enginesOf = ({ listed: own, discovered }: SourceSet): readonly EngineSource[] => {
    return [own, ...file, ...discovered, operators.source];
  };
  const engines = mergeSources(enginesOf(first), {
    onList(specs: readonly EngineSpec[]) {
      listed = specs;
      const present = operators.present(listed);
      named(present.length);
      fleet.apply(present);
    },
    onConflict: (error, source) => logger.error("conflicting engine ignored", { source, error }),
    ...observeSources("engine source", meters, logger),
  });
  const requests = mergeSources<InferenceObject>(
    first.requests,
    {
      onList: requestTables.replace,
      onConflict: (error, source) => logger.error("conflicting inference object ignored", { source, error }),
      ...observeSources("source of inference objects", meters, logger),
    },
    "inference",
  );
  return {
    operators,
    requestTables,
    async start() {
      try {
        await Promise.all([engines.start(), requests.start()]);
      } catch (error) {
        await requests.stop();
        throw error;
      }
    },
    async follow(said) {
      const set = setOf(said);
      await Promise.all([engines.follow(enginesOf(set)), requests.follow(set.requests)]);
    },
    stop: async () => void (await Promise.all([engines.stop(), requests.stop()])),
  };
}

/** Logs and counts outages of sources. */
function observeSources(
  what: string,
  meters: SourceMeters,
  logger: Logger,
): Pick<MergeObserver, "onError" | "onRecovered" | "onFollowed" | "onLeft"> {
  return {
    onError(error, source) {
      meters.failed(source);
      meters.isUp(source, false);
      // A source that does not answer may recover by itself; a wrong configuration cannot.
      const level = error.code === "discovery_failed" ? "warn" : "error";
      logger[level](`${what} failed; last good list stays in use`, { source, error });
    },
    onRecovered(source) {
      meters.isUp(source, true);
      logger.info(`${what} recovered`, { source });
    },
    onFollowed: (source) => meters.isUp(source, true),
    onLeft: meters.left,
  };
}

/** Tells operators what Kubernetes says about requests whenever that changes. */
function reportTables(tables: InferenceTables, { meter, logger }: Pick<EngineSourcesDeps, "meter" | "logger">): void {
  const objectives = gaugeOf(
    meter,
    "espalier_discovery_inference_objectives",
    "InferenceObjectives of the followed inference pools.",
  );
  const rewritten = gaugeOf(
    meter,
    "espalier_discovery_rewritten_models",
    "Models matched by InferenceModelRewrites of the followed inference pools.",
  );
  let wereSome = false;
  tables.onChange(() => {
    const counts = { objectives: tables.objectives.length, rewrittenModels: tables.rewrittenModels.length };
    objectives(counts.objectives);
    rewritten(counts.rewrittenModels);
    const areSome = counts.objectives + counts.rewrittenModels > 0;
    // Without Kubernetes, and where nobody writes any, there is nothing to tell.
    if (areSome || wereSome) logger.info("objectives and model rewrites of inference pools changed", counts);
    wereSome = areSome;
    const { ignored } = tables;
    if (ignored > 0) logger.warn("too many models in inference model rewrites; ignoring the rest", { ignored });
  });
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
  const up = meter.gauge(names.up, `1 while a source of ${what} is up, 0 while its last good list stays in use.`, [
    "source",
  ]);
  const failures = meter.counter(names.failures, `Outages of a source of ${what}, each counted once.`, ["source"]);
  return {
    isUp: (source, isUp) => up.series(source).set(isUp ? 1 : 0),
    failed: (source) => failures.series(source).add(),
    left(source) {
      for (const metric of [up, failures]) metric.forget("source", source);
    },
  };
}

/** The part of a configuration that names sources and may change in a reload. */
type SourceConfig = Pick<CompiledConfig, "engines" | "discovery">;

interface SourceSet {
  readonly listed: EngineSource;
  readonly discovered: readonly EngineSource[];
  /** Sources of what Kubernetes says about requests. */
  readonly requests: readonly Source<InferenceObject>[];
}

interface SourceSetDeps {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
}

/** Sources of successive configurations. A source whose settings are unchanged is kept. */
function createSourceSets(deps: SourceSetDeps): (config: SourceConfig) => SourceSet {
  const takeEngines = createKeeper<EngineSpec>();
  const takeRequests = createKeeper<InferenceObject>();
  return ({ engines, discovery }) => {
    const engineSources = takeEngines();
    const requestSources = takeRequests();
    const { dns, inferencePools, kubernetes: access } = discovery;
    const listed = engineSources("engines", engines, () => createListSource(engines));
    const discovered = [
      ...dns.map((options) => engineSources("dns", options, () => createDnsSource({ ...options, ...deps }))),
      ...kubernetesSources(discovery, deps, engineSources),
    ];
    const requests = inferencePools
      .filter(({ objectives, modelRewrites }) => objectives || modelRewrites)
      .map(({ traits: _, ...options }) =>
        requestSources("requests", [options, access], () =>
          withClient(discovery, deps, (ports) =>
            createInferenceObjectSource(ports, { ...options, logger: deps.logger }),
          ),
        ),
      );
    return { listed, discovered, requests };
  };
}

/** Gives the source that is known under a kind and its settings, or a new one. */
type TakeSource<Entry> = (kind: string, said: unknown, create: () => Source<Entry>) => Source<Entry>;

/** Keeps the sources of one configuration for the next: each call begins the next one, and forgets what it does not take. */
function createKeeper<Entry>(): () => TakeSource<Entry> {
  let current = new Map<string, Source<Entry>>();
  return () => {
    const known = current;
    const next = new Map<string, Source<Entry>>();
    current = next;
    return (kind, said, create) => {
      const key = `${kind} ${JSON.stringify(said)}`;
      const source = known.get(key) ?? create();
      next.set(key, source);
      return source;
    };
  };
}

function kubernetesSources(
  discovery: DiscoveryConfig,
  deps: SourceSetDeps,
  take: TakeSource<EngineSpec>,
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
    ...inferencePools.map(({ namespace, pool, traits }) =>
      take("pool", [{ namespace, pool, traits }, access], () =>
        following((ports) => createInferencePoolSource(ports, { namespace, pool, traits, logger })),
      ),
    ),
  ];
}

/** A source with its own client of the API server, which is closed with it. */
function withClient<Entry>(
  discovery: DiscoveryConfig,
  { scheduler, random }: SourceSetDeps,
  create: (ports: KubernetesPorts) => Source<Entry>,
): Source<Entry> {
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
