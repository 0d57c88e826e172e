import { createHash } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Scheduler, silentLogger, systemScheduler } from "@espalier/core";
import { type CountingMeter, createCountingMeter } from "@espalier/testing";
import { WebSocket } from "ws";
import * as Y from "yjs";
import type { DocumentUpdate } from "../../src/replicated-documents.ts";
import {
  createYWebsocketEndpoint,
  type ServedDocuments,
  type YWebsocketEndpoint,
  type YWebsocketLimits,
} from "../../src/y-websocket/y-websocket-endpoint.ts";

/** Documents in memory, served in pieces of one item each, as a journal would be. */
export interface MemoryDocuments extends ServedDocuments {
  readonly docs: Map<string, Y.Doc>;
  /** How many pieces were taken. */
  readonly pieces: { taken: number };
}

export function createMemoryDocuments(...names: string[]): MemoryDocuments {
  const docs = new Map<string, Y.Doc>();
  const listeners = new Set<(update: DocumentUpdate, isOwn: boolean) => void>();
  const pieces = { taken: 0 };
  for (const name of names) {
    const doc = new Y.Doc();
    docs.set(name, doc);
    doc.on("update", (bytes: Uint8Array) => {
      for (const listener of [...listeners]) listener({ name, from: 0, to: 0, bytes }, true);
    });
  }
  return {
    docs,
    pieces,
    state(name) {
      const doc = docs.get(name);
      return doc && { name, origin: undefined, clock: 0, byteLength: Y.encodeStateAsUpdate(doc).length };
    },
    *diff(name, stateVector, maxBytes) {
      const doc = docs.get(name);
      if (!doc) return;
      if (stateVector.length === 0) throw new RangeError("no state vector");
      const bytes = Y.encodeStateAsUpdate(doc, stateVector);
      pieces.taken++;
      yield { name, from: 0, to: 0, bytes };
      for (let sent = maxBytes; sent < bytes.length; sent += maxBytes) {
        pieces.taken++;
        yield { name, from: 0, to: 0, bytes };
      }
    },
    onUpdate(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export interface EndpointRig {
  readonly endpoint: YWebsocketEndpoint;
  readonly meter: CountingMeter;
  /** `ws://127.0.0.1:<port>`. */
  readonly url: string;
  /** A plain client, whose messages are kept. */
  connect(path: string, headers?: Record<string, string>): RawClient;
  close(): Promise<void>;
}

interface RawClient {
  readonly socket: WebSocket;
  readonly received: Uint8Array[];
  /** HTTP status of a refused upgrade. */
  readonly status: () => number | undefined;
  readonly closeCode: () => number | undefined;
  readonly isOpen: () => boolean;
}

export interface EndpointRigOptions {
  readonly documents: readonly ServedDocuments[];
  readonly key?: string;
  /** Host and origin of whom it lets in; all unless given. */
  readonly allowedOrigin?: string;
  readonly limits?: Partial<YWebsocketLimits>;
  readonly scheduler?: Scheduler;
}

export async function startEndpoint(options: EndpointRigOptions): Promise<EndpointRig> {
  const meter = createCountingMeter();
  const endpoint = createYWebsocketEndpoint({
    documents: options.documents,
    keySha256: options.key === undefined ? undefined : createHash("sha256").update(options.key).digest(),
    ...(options.allowedOrigin === undefined
      ? {}
      : { allows: ({ headers }) => headers.origin === options.allowedOrigin }),
    limits: options.limits ?? {},
    logger: silentLogger,
    meter,
    scheduler: options.scheduler ?? systemScheduler,
  });
  const server: Server = createServer();
  server.on("upgrade", (request, socket, head) => {
    if (!endpoint.handleUpgrade(request, socket, head)) socket.end("HTTP/1.1 418 Nobody\r\n\r\n");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const sockets: WebSocket[] = [];
  return {
    endpoint,
    meter,
    url,
    connect(path, headers = {}) {
      const socket = new WebSocket(`${url}${path}`, { headers, perMessageDeflate: false });
      sockets.push(socket);
      const received: Uint8Array[] = [];
      let status: number | undefined;
      let closeCode: number | undefined;
      socket.on("message", (data: Buffer) => received.push(new Uint8Array(data)));
      socket.on("unexpected-response", (_request, response) => {
        status = response.statusCode;
        socket.terminate();
      });
      socket.on("close", (code) => {
        closeCode = code;
      });
      socket.on("error", () => {});
      return {
        socket,
        received,
        status: () => status,
        closeCode: () => closeCode,
        isOpen: () => socket.readyState === WebSocket.OPEN,
      };
    },
    async close() {
      for (const socket of sockets) socket.terminate();
      endpoint.stop();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
