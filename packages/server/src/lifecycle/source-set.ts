import type { Logger, Random, Scheduler } from "@espalier/common";
import type { CompiledConfig, DiscoveryConfig } from "@espalier/config";
import {
  createDnsSource,
  createInferencePoolSource,
  createListSource,
  createPodSource,
  createServiceSource,
  type EngineSource,
  type KubernetesPorts,
} from "@espalier/discovery";
import { connectKubernetes } from "./connect-kubernetes.ts";

/** The part of a configuration that names sources which a reload may change. */
export type SourceConfig = Pick<CompiledConfig, "engines" | "discovery">;

export interface SourceSet {
  readonly listed: EngineSource;
  readonly discovered: readonly EngineSource[];
}

export interface SourceSetDeps {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
}

/**
 * The sources that configurations name, one after the other: what a configuration says of a source in the same words as
 * the one before is the same source.
 */
export function createSourceSets(deps: SourceSetDeps): (config: SourceConfig) => SourceSet {
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

/** A source with connections to the API server that end with it. */
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
