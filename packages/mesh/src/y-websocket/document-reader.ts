import type { DocumentUpdate } from "@espalier/replication";
import type { RawData, WebSocket } from "ws";
import type { YWebsocketLimits } from "./limits.ts";
import { emptyAwarenessMessage, readClientMessage, syncedMessage, updateMessage } from "./messages.ts";
import type { ServedDocuments } from "./served-documents.ts";

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
