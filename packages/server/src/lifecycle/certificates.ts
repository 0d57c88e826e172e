import { createHash } from "node:crypto";
import { asEspalierError, type Logger, type Meter, type Startable } from "@espalier/common";
import { expiryOf, type TlsMaterial } from "./tls-material.ts";

/** What speaks TLS: a listener, or the connections to engines. */
export interface TlsUser {
  readonly name: "data" | "admin" | "mesh" | "engines";
  readonly files: readonly string[];
  /** @throws EspalierError `config_unreadable` */
  readonly read: () => ReadCertificates;
}

/** Certificates that can be used. */
export interface ReadCertificates {
  readonly tls: Partial<TlsMaterial>;
  /** Connections from then on use these; those that are open stay. */
  readonly use: () => void;
}

/** Follows the files of certificates, from `start` on. */
export interface Certificates extends Startable {
  /** Reads the files again. Never throws: what cannot be used is logged and counted, and the old ones stay. */
  reload(): void;
}

export interface CertificatesOptions {
  readonly users: readonly TlsUser[];
  /** Calls back when a file may have changed; the result ends that. */
  readonly watch: (file: string, onChange: () => Promise<void>) => () => Promise<void>;
  readonly logger: Logger;
  readonly meters: TlsMeters;
}

export function createCertificates({ users, watch, ...deps }: CertificatesOptions): Certificates {
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

/** @returns looks at the files once */
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
      // Files are looked at every few seconds: what is as it was is not told again.
      if (message === failure) return;
      failure = message;
      meters.failed(name);
      logger.error("certificates not renewed; the old ones stay", { listener: name, error: { code, message } });
    }
  };
}

/** What became of certificates, by the name of their user. */
export interface TlsMeters {
  renewed(listener: string): void;
  failed(listener: string): void;
  /** @param atMs since the Unix epoch */
  validUntil(listener: string, atMs: number): void;
}

export function createTlsMeters(meter: Meter): TlsMeters {
  const reloads = meter.counter({
    name: "espalier_tls_reloads_total",
    help: "Changes of certificates, of a listener or towards engines (`engines`): applied, or failed (the old ones stay).",
    labels: ["listener", "outcome"],
  });
  const expiry = meter.gauge({
    name: "espalier_tls_certificate_expiry_timestamp_seconds",
    help: "Until when the certificate that a listener uses, or that engines are shown (`engines`), is valid, in Unix time.",
    labels: ["listener"],
  });
  return {
    renewed: (listener) => reloads.series(listener, "applied").add(),
    failed: (listener) => reloads.series(listener, "failed").add(),
    validUntil: (listener, atMs) => expiry.series(listener).set(atMs / 1_000),
  };
}
