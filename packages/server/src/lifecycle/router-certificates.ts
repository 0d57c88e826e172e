import type { Server } from "node:https";
import type { Logger, Meter, Scheduler } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import { watchFile } from "@espalier/discovery";
import type { FastifyInstance } from "fastify";
import type { MeshParts } from "../mesh/mesh-parts.ts";
import { type Certificates, createCertificates, createTlsMeters, type TlsListener } from "./certificates.ts";
import { httpsOptions } from "./tls-material.ts";

export interface RouterCertificatesOptions {
  readonly config: Pick<CompiledConfig, "listen" | "admin" | "mesh">;
  readonly data: FastifyInstance;
  readonly admin: FastifyInstance;
  readonly mesh: MeshParts | undefined;
  readonly logger: Logger;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/** Follows the certificates of every listener of a router that has some. */
export function createRouterCertificates(options: RouterCertificatesOptions): Certificates {
  const { config, data, admin, mesh, logger, scheduler, meter } = options;
  const setMeshTls = mesh?.setTls;
  const listeners: readonly (TlsListener | undefined)[] = [
    config.listen.tls && { name: "data", files: config.listen.tls, use: serverUse(data) },
    config.admin.tls && { name: "admin", files: config.admin.tls, use: serverUse(admin) },
    config.mesh.tls &&
      setMeshTls && { name: "mesh", files: config.mesh.tls, use: (tls) => setMeshTls({ ca: "", ...tls }) },
  ];
  return createCertificates({
    listeners: listeners.filter((listener) => listener !== undefined),
    watch: (path, onChange) => watchFile({ path, logger, scheduler }, onChange),
    logger,
    meters: createTlsMeters(meter),
  });
}

/** Node's HTTPS server has the whole interface of its HTTP server; fastify's types keep them apart. */
function serverUse({ server }: FastifyInstance): TlsListener["use"] {
  return (tls) => (server as unknown as Server).setSecureContext(httpsOptions(tls));
}
