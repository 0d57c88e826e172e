import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Scheduler } from "@espalier/common";

/** Certificates of both ends, in PEM. Whoever has one that `ca` has signed counts as a router of the cluster. */
export interface MutualTls {
  readonly cert: string | Uint8Array;
  readonly key: string | Uint8Array;
  readonly ca: string | Uint8Array;
  /** A name that the certificate of every router must be valid for; without it, only the signature is checked. */
  readonly serverName?: string;
}

/**
 * Takes requests to upgrade that are not for the mesh.
 *
 * @returns false when the path is not its own; it has not touched the socket then
 */
export type UpgradeHandler = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

export interface WsTransportOptions {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  readonly scheduler: Scheduler;
  readonly tls?: MutualTls;
  readonly upgrade?: UpgradeHandler;
  /** Largest frame in either direction. */
  readonly maxFrameBytes?: number;
  /** From the beginning of a dial to the end of the websocket's own handshake. */
  readonly connectTimeoutMs?: number;
  /** How long the other end has to answer when a connection is closed in good order. */
  readonly closeTimeoutMs?: number;
  /** Sockets from outside at once, those of other upgrade paths included. */
  readonly maxSockets?: number;
}

/** Where routers dial each other. */
export const meshPath = "/mesh";

export const defaultWsLimits = {
  maxFrameBytes: 1_024 * 1_024,
  connectTimeoutMs: 1_000,
  closeTimeoutMs: 500,
  maxSockets: 512,
} as const;
