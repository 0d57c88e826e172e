import { isIP } from "node:net";
import { asEngineId, type EngineRole, type EngineSpec, type KvTransferProtocol } from "@espalier/common";

/** Engines of a source beyond these are left out. A fleet has no more either. */
export const maxEnginesPerSource = 4_096;

/** What a source says of every engine that it finds. What is undefined or empty is learned from the engine. */
export interface EngineTraits {
  readonly scheme: "http" | "https";
  /** Empty to ask the engine. */
  readonly models: readonly string[];
  readonly role: EngineRole;
  /** Relative share of traffic, above 0. */
  readonly weight: number;
  /** Data-parallel ranks that requests are sent to one by one, from 1. */
  readonly ranks: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Port at which rank 0 publishes its KV events; undefined to ask the engine. */
  readonly kvEventsPort: number | undefined;
  /** Port at which missed ones can be asked for. It counts together with `kvEventsPort` only. */
  readonly kvReplayPort: number | undefined;
  /** Only events with a topic that starts so. */
  readonly kvTopic: string;
  /** How it hands KV blocks over; undefined for an engine that serves every request alone. */
  readonly kvTransfer: KvTransferProtocol | undefined;
  /** Port of its side of the transfer; undefined for the protocol's usual one. */
  readonly kvTransferPort: number | undefined;
}

/** Where an engine was found. */
export interface EngineAddress {
  /** IPv4 or IPv6, without brackets. */
  readonly address: string;
  readonly port: number;
}

/** `1.2.3.4:80`, `[::1]:80` */
export function formatHost({ address, port }: EngineAddress): string {
  return isIP(address) === 6 ? `[${address}]:${port}` : `${address}:${port}`;
}

/** The engine at an address. Its id is the address, so that routers that find it in other ways mean the same one. */
export function engineAt(at: EngineAddress, traits: EngineTraits): EngineSpec {
  const { scheme, models, role, weight, ranks, labels, kvEventsPort, kvReplayPort, kvTopic, kvTransfer } = traits;
  const host = formatHost(at);
  const eventsAt = (port: number): string => `tcp://${formatHost({ address: at.address, port })}`;
  return {
    id: asEngineId(host),
    url: `${scheme}://${host}`,
    ...{ models, role, weight, labels },
    ...(ranks === 1 ? {} : { ranks }),
    ...(kvEventsPort === undefined
      ? {}
      : {
          kvEvents: {
            endpoint: eventsAt(kvEventsPort),
            replayEndpoint: kvReplayPort === undefined ? undefined : eventsAt(kvReplayPort),
            topic: kvTopic,
          },
        }),
    ...(kvTransfer === undefined
      ? {}
      : { kvTransfer: { protocol: kvTransfer, host: undefined, port: traits.kvTransferPort } }),
  };
}
