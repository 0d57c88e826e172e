import { experimental, type ServerCredentials } from "@grpc/grpc-js";

/** Certificate chain and key as PEM texts; with `ca`, gateways must show a certificate of that authority. */
export interface PickerTls {
  readonly cert: string;
  readonly key: string;
  readonly ca?: string;
}

interface PickerCredentials {
  readonly server: ServerCredentials;
  /** New connections use these from now on. Whether gateways must show a certificate stays as it is. */
  set(tls: PickerTls): void;
}

type Provider = experimental.CertificateProvider;

export function createPickerCredentials(first: PickerTls): PickerCredentials {
  let tls = first;
  const identityListeners = new Set<experimental.IdentityCertificateUpdateListener>();
  const authorityListeners = new Set<experimental.CaCertificateUpdateListener>();
  const identity = (): experimental.IdentityCertificateUpdate => ({
    certificate: Buffer.from(tls.cert),
    privateKey: Buffer.from(tls.key),
  });
  const authority = (): experimental.CaCertificateUpdate | null =>
    tls.ca === undefined ? null : { caCertificate: Buffer.from(tls.ca) };
  const provider: Provider = {
    addIdentityCertificateListener(listener) {
      identityListeners.add(listener);
      listener(identity());
    },
    removeIdentityCertificateListener: (listener) => void identityListeners.delete(listener),
    addCaCertificateListener(listener) {
      authorityListeners.add(listener);
      listener(authority());
    },
    removeCaCertificateListener: (listener) => void authorityListeners.delete(listener),
  };
  const needsClientCertificate = first.ca !== undefined;
  // grpc-js 1.14.7 declares the authority first and reads the identity first: with an authority both are this provider.
  const create = experimental.createCertificateProviderServerCredentials as (
    identity: Provider,
    authority: Provider | null,
    needsClientCertificate: boolean,
  ) => ServerCredentials;
  return {
    server: create(provider, needsClientCertificate ? provider : null, needsClientCertificate),
    set(next) {
      tls = next;
      for (const listener of identityListeners) listener(identity());
      for (const listener of authorityListeners) listener(authority());
    },
  };
}
