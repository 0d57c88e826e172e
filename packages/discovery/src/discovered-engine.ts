import { isIP } from "node:net";
import { asEngineId, type EngineSpec, type EngineTraits } from "@espalier/common";

/** Engines of a source beyond these are left out. A fleet has no more either. */
export const maxEnginesPerSource = 4_096;

/** Where an engine, or another router, was found. */
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

/**
 * Which addresses count where an engine may have several: `auto` takes the IPv4 ones where there are any and the IPv6
 * ones otherwise, so that an engine with both is one engine.
 */
export type AddressFamily = "auto" | "ipv4" | "ipv6";
