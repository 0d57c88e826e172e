import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { EspalierError } from "@espalier/common";
import type { CompiledConfig, ListenerTls, MeshConfig } from "@espalier/config";
import type { TlsOptions } from "@espalier/proxy";

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
  const tls = { cert: readPem(certFile), key: readPem(keyFile), ...readAuthority(caFile) };
  return check(certFile, () => {
    expiryOf(tls);
    createSecureContext(tls);
    return tls;
  });
}

/**
 * What engines are dialled with.
 *
 * @throws EspalierError `config_unreadable`, also for what is there and cannot be used
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
  // Without an authority in its file, Node would take whoever any public one has signed.
  check(caFile, () => new X509Certificate(ca));
  return { ca };
}

/** The same for links of the mesh, where both ends show a certificate. */
export function readMutualTls(files: NonNullable<MeshConfig["tls"]>): Required<TlsMaterial> {
  return { ca: "", ...readTls(files) };
}

/** Until when the certificate itself is valid, in milliseconds since the Unix epoch. */
export function expiryOf({ cert }: Pick<TlsMaterial, "cert">): number {
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
