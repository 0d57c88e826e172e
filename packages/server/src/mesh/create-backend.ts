import type { Clock, Logger, Meter, Random, Scheduler } from "@espalier/common";
import type { CompiledConfig, MeshConfig } from "@espalier/config";
import { type Backend, createMesh, createRedisBackend, createWsTransport, type LinkSecurity } from "@espalier/mesh";
import type { Replica } from "@espalier/replication";
import { readPem } from "../router-options.ts";
import { advertisedHost } from "./router-identity.ts";

export interface BackendOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "prefix">;
  readonly replica: Replica;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** @throws EspalierError `config_unreadable` */
export function createBackend({ config, replica, ...ports }: BackendOptions): Backend {
  const { mesh, prefix } = config;
  const shared = {
    ...ports,
    replica: replica.ports,
    cluster: mesh.cluster,
    fleetSeed: prefix.seed,
    blockSizeTokens: prefix.blockSize,
    graceMs: mesh.joinGraceMs,
  };
  if (mesh.backend === "redis") return createRedisBackend({ ...shared, url: mesh.redisUrl?.reveal() ?? "" });
  const { tls } = mesh;
  const transport = createWsTransport({
    host: mesh.host,
    port: mesh.port,
    scheduler: ports.scheduler,
    ...(tls ? { tls: { cert: readPem(tls.certFile), key: readPem(tls.keyFile), ca: readPem(tls.caFile) } } : {}),
  });
  return createMesh({
    ...shared,
    transport,
    advertise: (listening) =>
      mesh.advertise ?? `${advertisedHost(mesh.host)}${listening.slice(listening.lastIndexOf(":"))}`,
    security: securityOf(mesh),
    seeds: mesh.seeds,
  });
}

function securityOf({ secret, tls }: MeshConfig): LinkSecurity {
  if (secret) return { kind: "secret", secret: secret.reveal() };
  return { kind: tls ? "mutual-tls" : "insecure" };
}
