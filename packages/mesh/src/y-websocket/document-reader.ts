import { ByteReader, ByteWriter } from "@espalier/common";
import type { DocumentUpdate, ReplicatedDocuments } from "@espalier/replication";
import type { RawData, WebSocket } from "ws";

/** Bounds of the y-websocket endpoint. */
export interface YWebsocketLimits {
  /** Readers at the same time; one more is answered 503. */
  readonly maxConnections: number;
  /** Bytes that wait for a reader; with more it is cut off, connects again and asks for what it lacks. */
  readonly maxBufferedBytes: number;
  /** Of a message from a reader. */
  readonly maxPayloadBytes: number;
  /** A document goes out in pieces of about this many bytes, each after the one before it has left. */
  readonly pieceBytes: number;
  /** A reader is told that somebody is there; the stock provider reconnects after 30 s of silence. */
  readonly awarenessIntervalMs: number;
}

export const defaultYWebsocketLimits: YWebsocketLimits = {
  maxConnections: 256,
  maxBufferedBytes: 1_048_576,
  maxPayloadBytes: 65_536,
  pieceBytes: 131_072,
  awarenessIntervalMs: 15_000,
};

/** Documents as those see them who let browsers follow them. */
export type ServedDocuments = Pick<ReplicatedDocuments, "state" | "diff" | "onUpdate">;

/** Close codes from 4400 to 4499 tell the stock provider not to come back. */
const closeCodes = { unreadable: 4400, documentGone: 4404 } as const;

/** What readers did that is counted. */
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
  /** Ends the connection when the document is gone, else says that somebody is there. */
  keepAlive(): void;
}

export function createDocumentReader(options: DocumentReaderOptions): DocumentReader {
  const { socket, name, documents, limits, count } = options;
  let pieces: Generator<DocumentUpdate, void, undefined> | undefined;
  /** Asked while an earlier question is being answered; only the latest counts. */
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

/** Kinds of messages of the y-websocket protocol (y-protocols 1.0, y-websocket 3.1); numbers are varints as ours are. */
const kinds = { sync: 0, awareness: 1, auth: 2, queryAwareness: 3 } as const;
const syncKinds = { step1: 0, step2: 1, update: 2 } as const;

/** What a reader may send. `write` stands for every attempt to change the document. */
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

/** A change of the document, as everybody is told of it. */
export function updateMessage(update: Uint8Array): Uint8Array {
  const writer = new ByteWriter(update.length + 16);
  writer.varint(kinds.sync);
  writer.varint(syncKinds.update);
  writer.bytes(update);
  return writer.copy();
}

/** An update without structs and deletions. */
const emptyUpdate = Uint8Array.of(0, 0);

/** Tells the reader that it has all there is: sync step 2 with an empty update, after the contents went as updates. */
export const syncedMessage = Uint8Array.of(kinds.sync, syncKinds.step2, emptyUpdate.length, ...emptyUpdate);

/** The awareness states of nobody. It tells the reader that somebody is there. */
export const emptyAwarenessMessage = Uint8Array.of(kinds.awareness, 1, 0);
