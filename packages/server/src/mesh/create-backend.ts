import { type Clock, type Logger, type Meter, type Random, type Scheduler, systemCpuMs } from "@espalier/common";
import type { CompiledConfig, MeshConfig } from "@espalier/config";
import { createHostLookup } from "@espalier/discovery";
import {
  type Backend,
  createMesh,
  createRedisBackend,
  createWsTransport,
  type FoundSeeds,
  type LinkSecurity,
  type MutualTls,
} from "@espalier/mesh";
import type { Replica } from "@espalier/replication";
import { readMutualTls } from "../lifecycle/tls-material.ts";
import { advertisedHost } from "./router-identity.ts";

export interface BackendOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "prefix">;
  /** Seeds beside those of the configuration. */
  readonly found?: FoundSeeds;
  readonly replica: Replica;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** A backend, and how what it is authenticated by changes while it runs. */
export interface MeshBackend {
  readonly backend: Backend;
  /** Undefined where routers prove no secret. */
  readonly setSecrets: ((mesh: MeshSecrets) => void) | undefined;
  /** Undefined where links use no certificates. It throws for those that cannot be used; then the old ones stay. */
  readonly setTls: ((tls: MutualTls) => void) | undefined;
}

/** The part of a configuration that says what routers prove to each other. */
export type MeshSecrets = Pick<MeshConfig, "secret" | "acceptedSecrets">;

/** @throws EspalierError `config_unreadable` */
export function createBackend({ config, replica, found, ...ports }: BackendOptions): MeshBackend {
  const { mesh, prefix } = config;
  const shared = {
    ...ports,
    replica: replica.ports,
    cluster: mesh.cluster,
    fleetSeed: prefix.seed,
    blockSizeTokens: prefix.blockSize,
    graceMs: mesh.joinGraceMs,
  };
  if (mesh.backend === "redis") {
    const backend = createRedisBackend({ ...shared, url: mesh.redisUrl?.reveal() ?? "" });
    return { backend, setSecrets: undefined, setTls: undefined };
  }
  const { tls, seedSources } = mesh;
  const transport = createWsTransport({
    host: mesh.host,
    port: mesh.port,
    scheduler: ports.scheduler,
    ...(tls && { tls: readMutualTls(tls) }),
  });
  const backend = createMesh({
    ...shared,
    transport,
    cpuMs: systemCpuMs,
    advertise: (listening) =>
      mesh.advertise ?? `${advertisedHost(mesh.host)}${listening.slice(listening.lastIndexOf(":"))}`,
    security: securityOf(mesh),
    seeds: mesh.seeds,
    ...(found && { found }),
    ...(seedSources.servers.length > 0 && { resolve: createHostLookup(seedSources.servers) }),
  });
  return {
    backend,
    setSecrets: mesh.secret && ((changed) => backend.setSecrets(secretsOf(changed))),
    setTls: tls && ((changed) => transport.setTls(changed)),
  };
}

function securityOf(mesh: MeshConfig): LinkSecurity {
  if (mesh.secret) return { kind: "secret", secrets: secretsOf(mesh) };
  return { kind: mesh.tls ? "mutual-tls" : "insecure" };
}

function secretsOf({ secret, acceptedSecrets }: MeshSecrets): readonly string[] {
  return [...(secret ? [secret] : []), ...acceptedSecrets].map((one) => one.reveal());
}
