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
