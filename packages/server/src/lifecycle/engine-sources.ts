import type { EngineSpec, Logger, Meter, Random, Scheduler, Startable } from "@espalier/common";
import { type CompiledConfig, type DiscoveryConfig, parseEnginesFile } from "@espalier/config";
import {
  createDnsSource,
  createFileSource,
  createInferencePoolSource,
  createPodSource,
  createServiceSource,
  type EngineSource,
  type KubernetesClient,
  mergeSources,
} from "@espalier/discovery";
import type { Fleet } from "@espalier/workers";
import type { EngineBoard } from "../operator/engine-board.ts";
import { createOperatorEngines, type OperatorEngines } from "../operator/operator-engines.ts";
import { connectKubernetes } from "./connect-kubernetes.ts";
import { createSourceMeters } from "./source-meters.ts";

const metricNames = { up: "espalier_discovery_source_up", failures: "espalier_discovery_failures_total" };

export interface EngineSourcesDeps {
  readonly config: Pick<CompiledConfig, "enginesFile" | "discovery">;
  /** The configured engines, which a reload replaces. */
  readonly list: EngineSource;
  /** What operators say of engines. */
  readonly board: EngineBoard;
  readonly fleet: Pick<Fleet, "apply">;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

export interface EngineSources extends Startable {
  /** For operators who add engines and remove them. */
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
}

/**
 * Feeds the fleet from the engines that the configuration lists, the file that it names, what it says to follow, and what
 * operators add; less those that they remove.
 */
export function createEngineSources(deps: EngineSourcesDeps): EngineSources {
  const { config, list, fleet, logger, scheduler } = deps;
  const { enginesFile: path, discovery } = config;
  let listed: readonly EngineSpec[] = [];
  const operators = createOperatorEngines({ board: deps.board, listed: () => listed, logger });
  const client = usesKubernetes(discovery) ? connectKubernetes(discovery, scheduler) : undefined;
  const sources = [
    list,
    ...(path === undefined ? [] : [createFileSource({ path, parse: parseEnginesFile, logger })]),
    ...discovery.dns.map((options) => createDnsSource({ ...options, ...{ scheduler, random: deps.random } })),
    ...(client ? kubernetesSources(deps, client) : []),
    operators.source,
  ];
  const meters = createSourceMeters(deps.meter, metricNames, "engines");
  const named = deps.meter
    .gauge({ name: "espalier_discovery_engines", help: "Engines that all sources name together." })
    .series();
  for (const { name } of sources) meters.isUp(name, true);
  const merged = mergeSources(sources, {
    onList(specs: readonly EngineSpec[]) {
      listed = specs;
      const present = operators.present(listed);
      named.set(present.length);
      fleet.apply(present);
    },
    onError(error, source) {
      meters.failed(source);
      meters.isUp(source, false);
      // What others do not answer mends itself; what was written wrong does not.
      const level = error.code === "discovery_failed" ? "warn" : "error";
      logger[level]("engine source failed; the last good list stays", { source, error });
    },
    onConflict: (error, source) => logger.error("an engine is left out", { source, error }),
    onRecovered(source) {
      meters.isUp(source, true);
      logger.info("engine source is followed again", { source });
    },
  });
  return {
    operators,
    start: () => merged.start(),
    async stop() {
      await merged.stop();
      client?.close();
    },
  };
}

const usesKubernetes = ({ services, pods, inferencePools }: DiscoveryConfig): boolean =>
  services.length + pods.length + inferencePools.length > 0;

function kubernetesSources(
  { config: { discovery }, scheduler, random, logger }: EngineSourcesDeps,
  client: KubernetesClient,
): EngineSource[] {
  const ports = { client, scheduler, random };
  return [
    ...discovery.services.map((options) => createServiceSource(ports, { ...options, logger })),
    ...discovery.pods.map((options) => createPodSource(ports, { ...options, logger })),
    ...discovery.inferencePools.map((options) => createInferencePoolSource(ports, { ...options, logger })),
  ];
}
