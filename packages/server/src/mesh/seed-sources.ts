import type { Logger, Meter, Random, Scheduler, Startable } from "@espalier/core";
import {
  createFileSource,
  createPeerDnsSource,
  createPeerPodSource,
  createPeerServiceSource,
  type KubernetesClient,
  type PeerSource,
  type SourceObserver,
} from "@espalier/engines";
import type { FoundSeeds } from "@espalier/mesh";
import { type CompiledConfig, parseSeedsFile } from "../config/index.ts";
import { connectKubernetes, createSourceMeters, type SourceMeters } from "../lifecycle/engine-sources.ts";

/** Interval of SRV lookups, with a fifth of jitter; a record missing from one answer is dropped. */
const dnsRounds = { intervalMs: 5_000, misses: 1 };

const metricNames = {
  up: "espalier_mesh_seed_source_up",
  failures: "espalier_mesh_seed_source_failures_total",
};

export interface SeedSourcesOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "discovery">;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** Finds other routers. `start` throws what `createFileSource` throws and does not wait for the network. */
export interface SeedSources extends Startable {
  readonly found: FoundSeeds;
}

/** Follows the configured sources of seeds, in addition to the listed seeds. */
export function createSeedSources(options: SeedSourcesOptions): SeedSources {
  const { config, scheduler, meter, logger } = options;
  const { seedsFile: file, seedServices: services, seedPods: pods } = config.mesh;
  const client = services.length + pods.length > 0 ? connectKubernetes(config.discovery, scheduler) : undefined;
  const files = file === undefined ? [] : [createFileSource({ path: file, parse: parseSeedsFile, logger, scheduler })];
  const asked = [...recordSources(options), ...(client ? kubernetesSources(options, client) : [])];
  const meters = createSourceMeters(meter, metricNames, "other routers");
  for (const { name } of [...files, ...asked]) meters.isUp(name, true);
  const lists = new Map<PeerSource, readonly string[]>();
  const listeners = new Set<() => void>();
  let isTried = asked.length === 0;
  const tell = (): void => {
    for (const listener of listeners) listener();
  };
  const observe = (source: PeerSource): SourceObserver<string> =>
    observerOf(source.name, { meters, logger }, (list) => {
      lists.set(source, list);
      tell();
    });
  return {
    found: {
      seeds: () => [...lists.values()].flat(),
      get isTried() {
        return isTried;
      },
      onChange(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    },
    async start() {
      for (const source of files) await source.start(observe(source));
      // One that fails is tried too: the router is not to wait for it.
      void Promise.all(asked.map((source) => source.start(observe(source)))).finally(() => {
        isTried = true;
        tell();
      });
    },
    async stop() {
      listeners.clear();
      await Promise.all([...files, ...asked].map((source) => source.stop()));
      client?.close();
    },
  };
}

function observerOf(
  source: string,
  { meters, logger }: { readonly meters: SourceMeters; readonly logger: Logger },
  onList: (list: readonly string[]) => void,
): SourceObserver<string> {
  return {
    onList,
    onError(error) {
      meters.failed(source);
      meters.isUp(source, false);
      // A source that does not answer may recover by itself; a wrong configuration cannot.
      const level = error.code === "discovery_failed" ? "warn" : "error";
      logger[level]("source of other routers failed; last good list stays in use", { source, error });
    },
    onRecovered() {
      meters.isUp(source, true);
      logger.info("source of other routers recovered", { source });
    },
  };
}

function recordSources({ config, scheduler, random }: SeedSourcesOptions): PeerSource[] {
  const { seedRecords, seedServers: servers } = config.mesh;
  return seedRecords.map((name) =>
    createPeerDnsSource({ name, port: undefined, family: "auto", servers, scheduler, random, ...dnsRounds }),
  );
}

function kubernetesSources({ config, scheduler, random }: SeedSourcesOptions, client: KubernetesClient): PeerSource[] {
  const { seedServices, seedPods } = config.mesh;
  const ports = { client, scheduler, random };
  return [
    ...seedServices.map((options) => createPeerServiceSource(ports, options)),
    ...seedPods.map((options) => createPeerPodSource(ports, options)),
  ];
}
