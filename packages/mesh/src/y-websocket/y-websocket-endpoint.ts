import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Logger, Meter, Scheduler } from "@espalier/common";
import { type WebSocket, WebSocketServer } from "ws";
import {
  createDocumentReader,
  type DocumentReader,
  defaultYWebsocketLimits,
  type ReaderIncident,
  type ServedDocuments,
  updateMessage,
  type YWebsocketLimits,
} from "./document-reader.ts";

export interface YWebsocketEndpointOptions {
  /** Asked in this order for a document of the name. */
  readonly documents: readonly ServedDocuments[];
  /** SHA-256 of the key that readers must show; undefined lets everybody read. */
  readonly keySha256: Buffer | undefined;
  /** Whether whoever asks may, by where the page is from that it runs in; everybody may unless given. */
  readonly allows?: (request: Pick<IncomingMessage, "headers">) => boolean;
  readonly limits?: Partial<YWebsocketLimits>;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly scheduler: Scheduler;
}

/** Lets stock y-websocket clients follow documents at `/yjs/<name>`, read-only. */
export interface YWebsocketEndpoint {
  /** @returns false when the path is none of documents, and somebody else has to answer */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean;
  readonly connectionCount: number;
  /** Cuts off every reader and lets go of the documents. */
  stop(): void;
}

const refusals = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  503: "Service Unavailable",
} as const;

/**
 * Makes an endpoint that sends changes and signs of life until it is stopped. Refusals are HTTP answers: 400 for a name
 * that cannot be read, 401 without the key, 403 for a page that may not, 404 for an unknown document, 503 for one reader too many.
 */
/** It listens to nothing itself: hand it the upgrades of a server. `stop` it before that server. */
export function createYWebsocketEndpoint(options: YWebsocketEndpointOptions): YWebsocketEndpoint {
  const { documents, keySha256, scheduler, logger } = options;
  const limits: YWebsocketLimits = { ...defaultYWebsocketLimits, ...options.limits };
  const meters = makeMeters(options.meter);
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: limits.maxPayloadBytes,
  });
  const readers = new Map<WebSocket, DocumentReader>();
  const cancels = [
    scheduler.every(limits.awarenessIntervalMs, () => {
      for (const reader of [...readers.values()]) reader.keepAlive();
    }),
    ...documents.map((source) =>
      source.onUpdate((update) => {
        let message: Uint8Array | undefined;
        for (const reader of [...readers.values()]) {
          if (reader.name !== update.name || reader.documents !== source) continue;
          message ??= updateMessage(update.bytes);
          reader.send(message);
        }
      }),
    ),
  ];
  const refuse = (socket: Duplex, status: keyof typeof refusals): true => {
    meters.refused.series(String(status)).add();
    socket.on("error", () => {});
    socket.end(`HTTP/1.1 ${status} ${refusals[status]}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    return true;
  };
  const follow = (socket: WebSocket, name: string, source: ServedDocuments): void => {
    const count = (incident: ReaderIncident): void => meters.incidents.series(incident).add();
    readers.set(socket, createDocumentReader({ socket, name, documents: source, limits, count }));
    meters.connections.set(readers.size);
    socket.on("error", (error) =>
      logger.debug("a y-websocket reader failed", { document: name, error: error.message }),
    );
    socket.on("close", () => {
      readers.delete(socket);
      meters.connections.set(readers.size);
    });
  };

  return {
    handleUpgrade(request, socket, head) {
      const asked = readDocumentRequest(request.url ?? "");
      if (asked === undefined) return false;
      if (asked === "invalid") return refuse(socket, 400);
      if (options.allows?.(request) === false) return refuse(socket, 403);
      if (!hasKey(keySha256, bearerOf(request) ?? asked.key)) return refuse(socket, 401);
      const source = documents.find((candidate) => candidate.state(asked.name));
      if (!source) return refuse(socket, 404);
      if (readers.size >= limits.maxConnections) return refuse(socket, 503);
      server.handleUpgrade(request, socket, head, (accepted) => follow(accepted, asked.name, source));
      return true;
    },
    get connectionCount() {
      return readers.size;
    },
    stop() {
      for (const cancel of cancels) cancel();
      for (const socket of [...readers.keys()]) socket.terminate();
      server.close();
    },
  };
}

function hasKey(expected: Buffer | undefined, key: string | undefined): boolean {
  if (!expected) return true;
  return key !== undefined && timingSafeEqual(createHash("sha256").update(key).digest(), expected);
}

function bearerOf({ headers }: IncomingMessage): string | undefined {
  return /^Bearer (.+)$/i.exec(headers.authorization ?? "")?.[1];
}

function makeMeters(meter: Meter) {
  return {
    connections: meter
      .gauge({ name: "espalier_yjs_readers_count", help: "Clients that follow documents through y-websocket." })
      .series(),
    refused: meter.counter({
      name: "espalier_yjs_refused_total",
      help: "Upgrades to y-websocket that were refused, by HTTP status.",
      labels: ["status"],
    }),
    incidents: meter.counter({
      name: "espalier_yjs_incidents_total",
      help: "What y-websocket readers did that they should not, and readers that were too slow.",
      labels: ["incident"],
    }),
  };
}

/** Where documents stand; the rest of the path is the name, its slashes plain or escaped. */
const prefix = "/yjs/";

/** Characters of a document's name at most. */
export const maxDocumentNameLength = 512;

/** What a request for a document asks. */
export interface DocumentRequest {
  readonly name: string;
  /** The key in the query, where a browser has to put it; undefined when there is none. */
  readonly key: string | undefined;
}

/** @returns undefined when the path is not one of documents, `invalid` when it is and cannot be read */
export function readDocumentRequest(target: string): DocumentRequest | "invalid" | undefined {
  if (!target.startsWith(prefix)) return undefined;
  const queryAt = target.indexOf("?");
  const path = target.slice(prefix.length, queryAt < 0 ? undefined : queryAt);
  const key = queryAt < 0 ? null : new URLSearchParams(target.slice(queryAt + 1)).get("key");
  try {
    const name = decodeURIComponent(path);
    if (name === "" || name.length > maxDocumentNameLength) return "invalid";
    return { name, key: key ?? undefined };
  } catch {
    return "invalid";
  }
}
