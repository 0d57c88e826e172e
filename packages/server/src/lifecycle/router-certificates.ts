import type { Server } from "node:https";
import type { Logger, Meter, Scheduler } from "@espalier/common";
import type { CompiledConfig, ListenerTls } from "@espalier/config";
import { watchFile } from "@espalier/discovery";
import type { TlsOptions } from "@espalier/proxy";
import type { FastifyInstance } from "fastify";
import type { MeshParts } from "../mesh/mesh-parts.ts";
import { type Certificates, createCertificates, createTlsMeters, type TlsUser } from "./certificates.ts";
import { httpsOptions, readEngineTls, readTls, type TlsMaterial } from "./tls-material.ts";

export interface RouterCertificatesOptions {
  readonly config: Pick<CompiledConfig, "listen" | "admin" | "mesh" | "engineTls">;
  readonly data: FastifyInstance;
  readonly admin: FastifyInstance;
  readonly mesh: MeshParts | undefined;
  readonly setEngineTls: SetEngineTls;
  readonly logger: Logger;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

type SetEngineTls = (tls: TlsOptions) => void;

/** Follows the certificates of every listener of a router that has some, and those towards engines. */
export function createRouterCertificates(options: RouterCertificatesOptions): Certificates {
  const { config, data, admin, mesh, setEngineTls, logger, scheduler, meter } = options;
  const setMeshTls = mesh?.setTls;
  const users = [
    config.listen.tls && listenerUser("data", config.listen.tls, serverUse(data)),
    config.admin.tls && listenerUser("admin", config.admin.tls, serverUse(admin)),
    config.mesh.tls && setMeshTls && listenerUser("mesh", config.mesh.tls, (tls) => setMeshTls({ ca: "", ...tls })),
    engineUser(config.engineTls, setEngineTls),
  ];
  return createCertificates({
    users: users.filter((user) => user !== undefined),
    watch: (path, onChange) => watchFile({ path, logger, scheduler }, onChange),
    logger,
    meters: createTlsMeters(meter),
  });
}

function listenerUser(name: TlsUser["name"], files: ListenerTls, use: (tls: TlsMaterial) => void): TlsUser {
  return {
    name,
    files: pathsOf(files),
    read() {
      const tls = readTls(files);
      return { tls, use: () => use(tls) };
    },
  };
}

/** Node's HTTPS server has the whole interface of its HTTP server; fastify's types keep them apart. */
function serverUse({ server }: FastifyInstance): (tls: TlsMaterial) => void {
  return (tls) => (server as unknown as Server).setSecureContext(httpsOptions(tls));
}

function engineUser(config: CompiledConfig["engineTls"], use: SetEngineTls): TlsUser | undefined {
  const files = pathsOf(config);
  if (files.length === 0) return undefined;
  return {
    name: "engines",
    files,
    read() {
      const tls = readEngineTls(config);
      return { tls, use: () => use(tls) };
    },
  };
}

function pathsOf({ certFile, keyFile, caFile }: Omit<CompiledConfig["engineTls"], "verify">): readonly string[] {
  return [certFile, keyFile, caFile].filter((path) => path !== undefined);
}
