import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import type { ConnectionEnd, Transport } from "./transport.ts";
import { WsConnection } from "./ws-connection.ts";
import { type defaultWsLimits, meshPath, type WsTransportOptions } from "./ws-options.ts";

export type WsSettings = WsTransportOptions & { readonly [Name in keyof typeof defaultWsLimits]: number };

/**
 * Begins to dial.
 *
 * @returns the websocket, to end it; undefined when the address cannot be dialed at all
 */
export function dialWebSocket(
  address: string,
  settings: WsSettings,
  observer: Parameters<Transport["dial"]>[1],
): WebSocket | undefined {
  const { tls, scheduler, connectTimeoutMs, closeTimeoutMs, maxFrameBytes } = settings;
  const url = `${tls ? "wss" : "ws"}://${address}${meshPath}`;
  if (!URL.canParse(url) || new URL(url).pathname !== meshPath) {
    scheduler.after(0, () => observer.closed({ kind: "error", code: 0, reason: `${address} is no address` }));
    return undefined;
  }
  const webSocket = new WebSocket(url, {
    perMessageDeflate: false,
    maxPayload: maxFrameBytes,
    skipUTF8Validation: true,
    // A mask protects proxies from scripts in browsers. There is no script here, and a mask of zeros costs nothing.
    generateMask: (mask: Buffer) => void mask.fill(0),
    ...(tls && {
      cert: asPem(tls.cert),
      key: asPem(tls.key),
      ca: asPem(tls.ca),
      minVersion: "TLSv1.3" as const,
      ...(tls.serverName === undefined ? { checkServerIdentity } : { servername: tls.serverName }),
    }),
  });
  let end: ConnectionEnd | undefined;
  let isOpen = false;
  const cancelTimeout = scheduler.after(connectTimeoutMs, () => {
    end ??= { kind: "timeout", code: 0, reason: `no answer in ${connectTimeoutMs} ms` };
    webSocket.terminate();
  });
  webSocket.once("upgrade", (response: IncomingMessage) => {
    webSocket.once("open", () => {
      isOpen = true;
      cancelTimeout();
      const { socket } = response;
      const connection = new WsConnection({ webSocket, socket, remote: address, scheduler, closeTimeoutMs });
      connection.observe(observer);
      observer.opened(connection);
    });
  });
  webSocket.on("error", (error: Error & { readonly code?: string }) => {
    if (!isOpen) end ??= dialEnd(error);
  });
  webSocket.once("close", () => {
    if (isOpen) return;
    cancelTimeout();
    observer.closed(end ?? { kind: "error", code: 1006, reason: "the dial was given up" });
  });
  return webSocket;
}

export const asPem = (value: string | Uint8Array): string | Buffer =>
  typeof value === "string" ? value : Buffer.from(value);

/** Finds no fault: whoever the cluster's own authority has signed is a router, at whatever address. */
const checkServerIdentity = (): boolean => false;

function dialEnd(error: Error & { readonly code?: string }): ConnectionEnd {
  const kind = error.code === "ECONNREFUSED" ? "refused" : error.code === "ETIMEDOUT" ? "timeout" : "error";
  return { kind, code: 0, reason: error.message };
}
