import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { ByteReader, ByteWriter, type Logger, type Meter, type Scheduler } from "@espalier/core";
import { type RawData, type WebSocket, WebSocketServer } from "ws";
import type { DocumentUpdate, ReplicatedDocuments } from "../replicated-documents.ts";

export interface YWebsocketEndpointOptions {
  /** Searched in this order for a document of the name. */
  readonly documents: readonly ServedDocuments[];
  /** SHA-256 of the key that readers must send; undefined lets all clients read. */
  readonly keySha256: Buffer | undefined;
  /** Whether a client may ask, by the origin of the page that it runs in. All may by default. */
  readonly allows?: (request: Pick<IncomingMessage, "headers">) => boolean;
  readonly limits?: Partial<YWebsocketLimits>;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly scheduler: Scheduler;
}

const refusals = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  503: "Service Unavailable",
} as const;

/** Lets stock y-websocket clients follow documents at `/yjs/<name>`, read-only. */
export type YWebsocketEndpoint = ReturnType<typeof createYWebsocketEndpoint>;

/**
 * Makes an endpoint that sends changes and heartbeats until it is stopped. Refusals are HTTP answers: 400 for an
 * unreadable name, 401 without the key, 403 for a page that is not allowed, 404 for an unknown document, 503 beyond the
 * bound on readers. It does not listen itself: pass it the upgrades of a server. `stop` it before that server.
 */
export function createYWebsocketEndpoint(options: YWebsocketEndpointOptions) {
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
    const unfollow = source.onFollowed?.(name);
    readers.set(socket, createDocumentReader({ socket, name, documents: source, limits, count }));
    meters.connections.set(readers.size);
    socket.on("error", (error) =>
      logger.debug("a y-websocket reader failed", { document: name, error: error.message }),
    );
    socket.on("close", () => {
      unfollow?.();
      readers.delete(socket);
      meters.connections.set(readers.size);
    });
  };

  return {
    /** @returns false when the path is not one of documents, and another handler must answer */
    handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
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
    get connectionCount(): number {
      return readers.size;
    },
    /** Disconnects every reader and releases the documents. */
    stop(): void {
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
    connections: meter.gauge("espalier_yjs_clients", "y-websocket clients.").series(),
    refused: meter.counter("espalier_yjs_refused_total", "Rejected y-websocket upgrades, by HTTP status.", ["status"]),
    incidents: meter.counter(
      "espalier_yjs_incidents_total",
      "y-websocket clients disconnected for protocol violations or slow reads.",
      ["incident"],
    ),
  };
}

/** Path of documents; the rest of the path is the name, its slashes plain or escaped. */
const prefix = "/yjs/";

/** Characters of a document's name at most. */
export const maxDocumentNameLength = 512;

/** What a request for a document asks. */
export interface DocumentRequest {
  readonly name: string;
  /** The key in the query, where a browser must put it; undefined when there is none. */
  readonly key: string | undefined;
}

/** @returns undefined when the path is not one of documents, `invalid` when it is one but unreadable */
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

/** Bounds of the y-websocket endpoint. */
export type YWebsocketLimits = Readonly<typeof defaultYWebsocketLimits>;

export const defaultYWebsocketLimits = {
  /** Readers at the same time; one more is answered 503. */
  maxConnections: 256,
  /**
   * Bytes that may wait for a reader. Beyond it the reader is disconnected, connects again and asks for what it lacks.
   */
  maxBufferedBytes: 1_048_576,
  /** Bytes of a message from a reader. */
  maxPayloadBytes: 65_536,
  /** A document is sent in pieces of about this many bytes, each after the one before it was written out. */
  pieceBytes: 131_072,
  /** How often a reader gets a keep-alive message; the stock provider reconnects after 30 s of silence. */
  awarenessIntervalMs: 15_000,
};

/** The documents as endpoints for browsers see them. */
export interface ServedDocuments extends Pick<ReplicatedDocuments, "state" | "diff" | "onUpdate"> {
  /**
   * Called when a reader begins to follow a document, before it asks for anything: for documents that are kept up only while
   * somebody reads them.
   *
   * @returns what is called, once, when the reader is gone
   */
  readonly onFollowed?: (name: string) => () => void;
}

/** Close codes from 4400 to 4499 keep the stock provider from coming back. */
const closeCodes = { unreadable: 4400, documentGone: 4404 } as const;

/** Counted actions of readers. */
export type ReaderIncident = "write-ignored" | "message-unreadable" | "message-unknown" | "buffer-full";

export interface DocumentReaderOptions {
  readonly socket: WebSocket;
  readonly name: string;
  readonly documents: ServedDocuments;
  readonly limits: YWebsocketLimits;
  readonly count: (incident: ReaderIncident) => void;
}

/** One client that follows one document. */
export interface DocumentReader {
  readonly name: string;
  readonly documents: ServedDocuments;
  /** Sends a message that is already encoded. */
  send(message: Uint8Array): void;
  /** Ends the connection when the document is gone; otherwise sends a keep-alive message. */
  keepAlive(): void;
}

export function createDocumentReader(options: DocumentReaderOptions): DocumentReader {
  const { socket, name, documents, limits, count } = options;
  let pieces: Generator<DocumentUpdate, void, undefined> | undefined;
  /** A request that arrives while an earlier one is being answered; only the latest counts. */
  let nextVector: Uint8Array | undefined;

  const send = (message: Uint8Array, whenSent?: () => void): void => {
    if (socket.readyState !== socket.OPEN) return;
    if (socket.bufferedAmount > limits.maxBufferedBytes) {
      count("buffer-full");
      socket.terminate();
      return;
    }
    socket.send(message, whenSent && ((error) => error || whenSent()));
  };
  const refuse = (): void => {
    count("message-unreadable");
    socket.close(closeCodes.unreadable, "unreadable message");
  };
  const sendPiece = (): void => {
    if (!pieces || socket.readyState !== socket.OPEN) return;
    try {
      const piece = pieces.next();
      if (!piece.done) {
        send(updateMessage(piece.value.bytes), sendPiece);
        return;
      }
      pieces = undefined;
      send(syncedMessage);
      if (nextVector) answer(nextVector);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      refuse();
    }
  };
  const answer = (stateVector: Uint8Array): void => {
    nextVector = undefined;
    pieces = documents.diff(name, stateVector, limits.pieceBytes);
    sendPiece();
  };
  const take = (data: RawData, isBinary: boolean): void => {
    try {
      if (!isBinary || !(data instanceof Uint8Array)) throw new RangeError("no binary message");
      const message = readClientMessage(data, limits.maxPayloadBytes);
      if (message.kind === "write") count("write-ignored");
      else if (message.kind === "unknown") count("message-unknown");
      else if (message.kind === "query-awareness") send(emptyAwarenessMessage);
      else if (message.kind === "sync-step-1") {
        const stateVector = Uint8Array.from(message.stateVector);
        if (pieces) nextVector = stateVector;
        else answer(stateVector);
      }
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      refuse();
    }
  };
  socket.on("message", take);

  return {
    name,
    documents,
    send: (message) => send(message),
    keepAlive() {
      if (documents.state(name)) send(emptyAwarenessMessage);
      else socket.close(closeCodes.documentGone, "the document is gone");
    },
  };
}

/** Kinds of messages of the y-websocket protocol (y-protocols 1.0, y-websocket 3.1); its varints are ours. */
const kinds = { sync: 0, awareness: 1, auth: 2, queryAwareness: 3 } as const;
const syncKinds = { step1: 0, step2: 1, update: 2 } as const;

/** What a reader may send. `write` is any attempt to change the document. */
export type ClientMessage =
  | { readonly kind: "sync-step-1"; readonly stateVector: Uint8Array }
  | { readonly kind: "write" | "awareness" | "query-awareness" | "unknown" };

/**
 * @param maxBytes of a state vector or an update
 * @throws RangeError for bytes that end too early
 */
export function readClientMessage(bytes: Uint8Array, maxBytes: number): ClientMessage {
  const reader = new ByteReader(bytes);
  switch (reader.varint()) {
    case kinds.sync: {
      const syncKind = reader.varint();
      const payload = reader.bytes(maxBytes);
      if (syncKind === syncKinds.step1) return { kind: "sync-step-1", stateVector: payload };
      return { kind: syncKind === syncKinds.step2 || syncKind === syncKinds.update ? "write" : "unknown" };
    }
    case kinds.awareness:
      return { kind: "awareness" };
    case kinds.queryAwareness:
      return { kind: "query-awareness" };
    default:
      return { kind: "unknown" };
  }
}

/** A change of the document, as the message to all readers. */
export function updateMessage(update: Uint8Array): Uint8Array {
  const writer = new ByteWriter(update.length + 16);
  writer.varint(kinds.sync);
  writer.varint(syncKinds.update);
  writer.bytes(update);
  return writer.copy();
}

/** An update without structs and deletions. */
const emptyUpdate = Uint8Array.of(0, 0);

/** Says that the reader has all there is: sync step 2 with an empty update, after the contents went as updates. */
export const syncedMessage = Uint8Array.of(kinds.sync, syncKinds.step2, emptyUpdate.length, ...emptyUpdate);

/** Awareness states of no client: the keep-alive message for readers. */
export const emptyAwarenessMessage = Uint8Array.of(kinds.awareness, 1, 0);
