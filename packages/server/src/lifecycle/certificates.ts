import { createHash } from "node:crypto";
import { asEspalierError, type Logger, type Meter, type Startable } from "@espalier/common";
import type { ListenerTls } from "@espalier/config";
import { expiryOf, readTls, type TlsMaterial } from "./tls-material.ts";

/** A listener that serves TLS. */
export interface TlsListener {
  readonly name: "data" | "admin" | "mesh";
  readonly files: ListenerTls;
  /** Connections from then on use these; those that are open stay. */
  readonly use: (tls: TlsMaterial) => void;
}

/** Follows the files of certificates, from `start` on. */
export interface Certificates extends Startable {
  /** Reads the files again. Never throws: what cannot be used is logged and counted, and the old ones stay. */
  reload(): void;
}

export interface CertificatesOptions {
  readonly listeners: readonly TlsListener[];
  /** Calls back when a file may have changed; the result ends that. */
  readonly watch: (file: string, onChange: () => Promise<void>) => () => Promise<void>;
  readonly logger: Logger;
  readonly meters: TlsMeters;
}

export function createCertificates({ listeners, watch, ...deps }: CertificatesOptions): Certificates {
  const looks = listeners.map((listener) => ({ listener, look: createLook(listener, deps) }));
  let unwatch: readonly (() => Promise<void>)[] = [];
  return {
    reload() {
      for (const { look } of looks) look();
    },
    async start() {
      unwatch = looks.flatMap(({ listener: { files }, look }) => {
        look();
        const paths = [files.certFile, files.keyFile, files.caFile].filter((path) => path !== undefined);
        return [...new Set(paths)].map((path) => watch(path, async () => look()));
      });
    },
    async stop() {
      await Promise.all(unwatch.map((end) => end()));
    },
  };
}

/** @returns looks at the files once */
function createLook(
  { name, files, use }: TlsListener,
  { logger, meters }: Pick<CertificatesOptions, "logger" | "meters">,
): () => void {
  let usedDigest: string | undefined;
  let failure: string | undefined;
  return () => {
    try {
      const tls = readTls(files);
      const digest = createHash("sha256").update(JSON.stringify(tls)).digest("base64");
      failure = undefined;
      if (digest === usedDigest) return;
      use(tls);
      meters.validUntil(name, expiryOf(tls));
      if (usedDigest !== undefined) {
        meters.renewed(name);
        logger.info("certificates renewed", { listener: name, file: files.certFile });
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

/** What became of certificates, by the name of their listener. */
export interface TlsMeters {
  renewed(listener: string): void;
  failed(listener: string): void;
  /** @param atMs since the Unix epoch */
  validUntil(listener: string, atMs: number): void;
}

export function createTlsMeters(meter: Meter): TlsMeters {
  const reloads = meter.counter({
    name: "espalier_tls_reloads_total",
    help: "Changes of a listener's certificates: applied, or failed (the old ones stay).",
    labels: ["listener", "outcome"],
  });
  const expiry = meter.gauge({
    name: "espalier_tls_certificate_expiry_timestamp_seconds",
    help: "Until when the certificate that a listener uses is valid, in Unix time.",
    labels: ["listener"],
  });
  return {
    renewed: (listener) => reloads.series(listener, "applied").add(),
    failed: (listener) => reloads.series(listener, "failed").add(),
    validUntil: (listener, atMs) => expiry.series(listener).set(atMs / 1_000),
  };
}
