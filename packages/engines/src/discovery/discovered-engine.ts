import { asEngineId, type EngineSpec, type EngineTraits, hostInUrl } from "@espalier/core";

/** Maximum engines of a source; further ones are left out. A fleet has the same limit. */
export const maxEnginesPerSource = 4_096;

/** Where an engine, or another router, was found. */
export interface EngineAddress {
  /** IPv4 or IPv6, without brackets. */
  readonly address: string;
  readonly port: number;
}

/** `1.2.3.4:80`, `[::1]:80` */
export const formatHost = ({ address, port }: EngineAddress): string => `${hostInUrl(address)}:${port}`;

/** The engine at an address. Its id is the address, so all routers use the same id, regardless of the source. */
export function engineAt(at: EngineAddress, traits: EngineTraits): EngineSpec {
  const { scheme, models, role, weight, ranks, firstRank, labels, region } = traits;
  const { kvEventsPort, kvReplayPort, kvTopic, kvTransfer, kvTransferPort, kvPull, kvPullPort } = traits;
  const host = formatHost(at);
  const eventsAt = (port: number | undefined): string | undefined =>
    port === undefined ? undefined : `tcp://${formatHost({ address: at.address, port })}`;
  const endpoint = eventsAt(kvEventsPort);
  return {
    id: asEngineId(host),
    url: `${scheme}://${host}`,
    ...{ models, role, weight, labels, region, ranks, firstRank },
    kvEvents: endpoint === undefined ? undefined : { endpoint, replay: eventsAt(kvReplayPort), topic: kvTopic },
    kvTransfer: kvTransfer && { protocol: kvTransfer, host: undefined, port: kvTransferPort },
    kvPull: kvPull && { protocol: kvPull, host: undefined, port: kvPullPort },
  };
}

/**
 * Which addresses to use if an engine may have several: `auto` uses IPv6 ones only if there are no IPv4 ones, so that an
 * engine with both counts once.
 */
export type AddressFamily = "auto" | "ipv4" | "ipv6";
