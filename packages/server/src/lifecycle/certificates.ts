import { createHash, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Server } from "node:https";
import { createSecureContext } from "node:tls";
import {
  asEspalierError,
  EspalierError,
  type Logger,
  type Meter,
  type Scheduler,
  type Startable,
} from "@espalier/core";
import type { TlsOptions } from "@espalier/engines";
import { watchFile } from "@espalier/engines";
import type { FastifyInstance } from "fastify";
import type { CompiledConfig, ListenerTls, MeshConfig } from "../config/index.ts";

/** Certificate and key of a listener, as PEM texts. */
export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  /** Authorities for client certificates; if set, clients must show one. */
  readonly ca?: string;
}

/** The `node:https` options for it. */
export function httpsOptions(tls: TlsMaterial): Readonly<Record<string, unknown>> {
  return tls.ca === undefined ? { ...tls } : { ...tls, requestCert: true };
}

/**
 * The certificates of a listener.
 *
 * @throws EspalierError `config_unreadable`, also for unusable content
 */
export function readTls({ certFile, keyFile, caFile }: ListenerTls): TlsMaterial {
  const tls = { cert: readPem(certFile), key: readPem(keyFile), ...readAuthority(caFile) };
  return check(certFile, () => {
    expiryOf(tls);
    createSecureContext(tls);
    return tls;
  });
}

/**
 * TLS options of connections to engines.
 *
 * @throws EspalierError `config_unreadable`, also for unusable content
 */
export function readEngineTls({ caFile, certFile, keyFile, verify }: CompiledConfig["engineTls"]): TlsOptions {
  // The configuration has both or neither.
  const own =
    certFile === undefined || keyFile === undefined ? readAuthority(caFile) : readTls({ certFile, keyFile, caFile });
  return { rejectUnauthorized: verify, ...own };
}

function readAuthority(caFile: string | undefined): Pick<TlsMaterial, "ca"> {
  if (caFile === undefined) return {};
  const ca = readPem(caFile);
  // Given a file without an authority, Node would accept any certificate signed by a public one.
  check(caFile, () => new X509Certificate(ca));
  return { ca };
}

/** The same for mesh links, where both sides show a certificate. */
export function readMutualTls(files: NonNullable<MeshConfig["tls"]>): Required<TlsMaterial> {
  return { ca: "", ...readTls(files) };
}

/** When the certificate expires, in milliseconds since the Unix epoch. */
function expiryOf({ cert }: Pick<TlsMaterial, "cert">): number {
  return Date.parse(new X509Certificate(cert).validTo);
}

/** @throws EspalierError `config_unreadable` */
function readPem(path: string): string {
  return check(path, () => readFileSync(path, "utf8"));
}

function check<Result>(path: string, use: () => Result): Result {
  try {
    return use();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new EspalierError("config_unreadable", `Cannot read ${path}: ${reason}`, { cause: error });
  }
}

interface RouterCertificatesOptions {
  readonly config: Pick<
    CompiledConfig,
    "listen" | "admin" | "rollouts" | "endpointPicker" | "scale" | "mesh" | "engineTls"
  >;
  readonly data: FastifyInstance;
  readonly admin: FastifyInstance;
  readonly rollouts: FastifyInstance | undefined;
  readonly mesh: { readonly setTls: ((tls: Required<TlsMaterial>) => void) | undefined } | undefined;
  readonly picker: { setTls(tls: TlsMaterial): void } | undefined;
  readonly scaler: { setTls(tls: TlsMaterial): void } | undefined;
  readonly setEngineTls: SetEngineTls;
  readonly logger: Logger;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

type SetEngineTls = (tls: TlsOptions) => void;

/** Watches the certificates of a router's TLS listeners and of its connections to engines. */
export function createRouterCertificates(options: RouterCertificatesOptions): Certificates {
  const { config, data, admin, rollouts, mesh, picker, scaler, setEngineTls, logger, scheduler, meter } = options;
  const setMeshTls = mesh?.setTls;
  const users = [
    config.listen.tls && listenerUser("data", config.listen.tls, serverUse(data)),
    config.admin.tls && listenerUser("admin", config.admin.tls, serverUse(admin)),
    config.rollouts?.tls && rollouts && listenerUser("rollouts", config.rollouts.tls, serverUse(rollouts)),
    config.endpointPicker?.tls && picker && listenerUser("picker", config.endpointPicker.tls, picker.setTls),
    config.scale.tls && scaler && listenerUser("scaler", config.scale.tls, scaler.setTls),
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

/** Node's HTTPS server implements the whole interface of its HTTP server, but fastify's types distinguish them. */
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

/** A user of certificates: a listener, or the connections to engines. */
interface TlsUser {
  readonly name: "data" | "admin" | "rollouts" | "picker" | "scaler" | "mesh" | "engines";
  readonly files: readonly string[];
  /** @throws EspalierError `config_unreadable` */
  readonly read: () => ReadCertificates;
}

/** Valid certificates, read but not yet in use. */
interface ReadCertificates {
  readonly tls: Partial<TlsMaterial>;
  /** New connections use them from now on; open ones are unchanged. */
  readonly use: () => void;
}

/** Watches certificate files from `start` on. */
interface Certificates extends Startable {
  /** Reads the files again. Never throws: failures are logged and counted, and the old certificates stay. */
  reload(): void;
}

interface CertificatesOptions {
  readonly users: readonly TlsUser[];
  /** Calls back when a file may have changed. Returns a function that stops watching. */
  readonly watch: (file: string, onChange: () => Promise<void>) => () => Promise<void>;
  readonly logger: Logger;
  readonly meters: TlsMeters;
}

function createCertificates({ users, watch, ...deps }: CertificatesOptions): Certificates {
  const looks = users.map((user) => ({ files: user.files, look: createLook(user, deps) }));
  let unwatch: readonly (() => Promise<void>)[] = [];
  return {
    reload() {
      for (const { look } of looks) look();
    },
    async start() {
      unwatch = looks.flatMap(({ files, look }) => {
        look();
        return [...new Set(files)].map((path) => watch(path, async () => look()));
      });
    },
    async stop() {
      await Promise.all(unwatch.map((end) => end()));
    },
  };
}

/** @returns a function that checks the files once */
function createLook(
  { name, files, read }: TlsUser,
  { logger, meters }: Pick<CertificatesOptions, "logger" | "meters">,
): () => void {
  let usedDigest: string | undefined;
  let failure: string | undefined;
  return () => {
    try {
      const { tls, use } = read();
      const digest = createHash("sha256").update(JSON.stringify(tls)).digest("base64");
      failure = undefined;
      if (digest === usedDigest) return;
      use();
      if (tls.cert !== undefined) meters.validUntil(name, expiryOf({ cert: tls.cert }));
      if (usedDigest !== undefined) {
        meters.renewed(name);
        logger.info("certificates renewed", { listener: name, files });
      }
      usedDigest = digest;
    } catch (thrown) {
      const { code, message } = asEspalierError(thrown);
      // Files are checked every few seconds: the same failure is not reported again.
      if (message === failure) return;
      failure = message;
      meters.failed(name);
      logger.error("certificates not renewed; previous ones stay in use", { listener: name, error: { code, message } });
    }
  };
}

/** Metrics of certificates, by user. */
interface TlsMeters {
  renewed(listener: string): void;
  failed(listener: string): void;
  /** @param atMs since the Unix epoch */
  validUntil(listener: string, atMs: number): void;
}

export function createTlsMeters(meter: Meter): TlsMeters {
  const reloads = meter.counter(
    "espalier_tls_reloads_total",
    "Certificate reloads of a listener, or for connections to engines (`engines`): applied, or failed (previous ones stay in use).",
    ["listener", "outcome"],
  );
  const expiry = meter.gauge(
    "espalier_tls_certificate_expiry_timestamp_seconds",
    "Expiry of the certificate of a listener, or of the client certificate for engines (`engines`), in Unix time.",
    ["listener"],
  );
  return {
    renewed: (listener) => reloads.series(listener, "applied").add(),
    failed: (listener) => reloads.series(listener, "failed").add(),
    validUntil: (listener, atMs) => expiry.series(listener).set(atMs / 1_000),
  };
}
