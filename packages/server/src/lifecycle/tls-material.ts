import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { EspalierError } from "@espalier/common";
import type { ListenerTls, MeshConfig } from "@espalier/config";

/** What a listener serves HTTPS with, as PEM texts. */
export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  /** Makes clients show a certificate that one of these signed. */
  readonly ca?: string;
}

/** The options of node:https for it. */
export function httpsOptions(tls: TlsMaterial): Readonly<Record<string, unknown>> {
  return tls.ca === undefined ? { ...tls } : { ...tls, requestCert: true };
}

/**
 * The certificates of a listener.
 *
 * @throws EspalierError `config_unreadable`, also for what is there and cannot be used
 */
export function readTls({ certFile, keyFile, caFile }: ListenerTls): TlsMaterial {
  const own = { cert: readPem(certFile), key: readPem(keyFile) };
  // Without an authority in its file, Node would take whoever any public one has signed.
  const ca = caFile === undefined ? {} : { ca: readPem(caFile) };
  if (caFile !== undefined) check(caFile, () => new X509Certificate(ca.ca ?? ""));
  return check(certFile, () => {
    const tls = { ...own, ...ca };
    expiryOf(tls);
    createSecureContext(tls);
    return tls;
  });
}

/** The same for links of the mesh, where both ends show a certificate. */
export function readMutualTls(files: NonNullable<MeshConfig["tls"]>): Required<TlsMaterial> {
  return { ca: "", ...readTls(files) };
}

/** Until when the certificate itself is valid, in milliseconds since the Unix epoch. */
export function expiryOf({ cert }: TlsMaterial): number {
  return Date.parse(new X509Certificate(cert).validTo);
}

/** @throws EspalierError `config_unreadable` */
export function readPem(path: string): string {
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
