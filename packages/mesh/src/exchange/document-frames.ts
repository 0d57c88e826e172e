import {
  after,
  flag,
  flags,
  hash,
  list,
  messages,
  name,
  oneOf,
  optional,
  rest,
  struct,
  text,
  varint,
  type Whole,
  whole,
} from "@espalier/core";
import type { FoldStatement } from "../replica-ports.ts";
import type { DocumentUpdate } from "../replicated-documents.ts";

/** Bytes of a document's name, of a target's key, and of an epoch's id, at most. */
const maxNameBytes = 1024;
/** Bytes of a state vector. That of a shared document has an entry per epoch of a router. */
const maxStateVectorBytes = 64 * 1024;
/** Entries of one vector, statements and targets of one frame: the sender's own bounds are no higher. */
const maxEntries = 4096;

/** `own`: the sender writes it. `shared`: many routers write it, so it has no clock. */
export type DocumentKind = "journal" | "own" | "shared";

/** Gives a name its number for later frames on this link in this direction. A number may be given again. */
export interface OpenMessage {
  readonly kind: "open";
  readonly number: number;
  readonly documentKind: DocumentKind;
  readonly name: string;
}

/** A change as it happens. */
export interface UpdateMessage {
  readonly kind: "update";
  readonly number: number;
  readonly from: number;
  readonly to: number;
  /** When its writer committed it, by that router's wall clock. */
  readonly committedWallMs: number;
  readonly bytes: Uint8Array;
}

/** How far the sender has documents: the writer's clock, or for a shared document the hash of its state vector. */
export interface VectorMessage {
  readonly kind: "vector";
  /** The first one on a link, with everything the sender has. */
  readonly isFirst: boolean;
  /** The sender has state of its own to give as a snapshot. */
  readonly canServe: boolean;
  readonly entries: readonly { readonly number: number; readonly version: number }[];
}

/** Asks for what a replica with this state vector lacks: step 1 of y-protocols. The answer comes as bulk. */
export interface WantMessage {
  readonly kind: "want";
  readonly request: number;
  readonly name: string;
  readonly stateVector: Uint8Array;
}

/** The sender does not wait for the answer to a request any more. */
interface CancelMessage {
  readonly kind: "cancel";
  readonly request: number;
}

/** Asks for the state of targets; undefined for all. The answer comes as bulk. */
export interface SnapshotWantMessage {
  readonly kind: "snapshot-want";
  readonly request: number;
  readonly targets: readonly string[] | undefined;
}

export interface StatementsMessage {
  readonly kind: "statements";
  readonly statements: readonly FoldStatement[];
}

/** Messages of the channel `documents`. */
export type DocumentMessage =
  | OpenMessage
  | UpdateMessage
  | VectorMessage
  | WantMessage
  | CancelMessage
  | SnapshotWantMessage
  | StatementsMessage;

const key = text(maxNameBytes);
const vectorFlags = { first: 1, canServe: 2 } as const;

const frames = messages({
  open: [
    1,
    struct({
      number: varint(),
      documentKind: oneOf<DocumentKind>("journal", "own", "shared"),
      name: name(maxNameBytes),
    }),
  ],
  update: [
    2,
    struct({ number: varint(), from: varint(), to: after("from"), committedWallMs: varint(), bytes: rest() }),
  ],
  vector: [
    3,
    struct({
      flags: flags(vectorFlags),
      isFirst: flag(vectorFlags.first),
      canServe: flag(vectorFlags.canServe),
      entries: list(struct({ number: varint(), version: varint() }), maxEntries),
    }),
  ],
  want: [4, struct({ request: varint(), name: key, stateVector: rest(maxStateVectorBytes) })],
  cancel: [5, struct({ request: varint() })],
  "snapshot-want": [6, struct({ request: varint(), targets: optional(list(key, maxEntries)) })],
  statements: [
    7,
    struct({
      statements: list(
        struct({
          target: key,
          epoch: key,
          sequence: varint(),
          isComplete: oneOf(false, true),
          blocks: varint(),
          digest: hash,
        }),
        maxEntries,
      ),
    }),
  ],
});

/** A piece of a document, of which answers to wants are made. */
export const documentPiece: Whole<Omit<DocumentUpdate, "name">> = whole(
  struct({ from: varint(), to: after("from"), bytes: rest() }),
);

export const documentFrameLayouts = { ...frames.layouts, "piece, on bulk": documentPiece.layout };

export function encodeDocumentMessage(message: DocumentMessage): Uint8Array {
  return frames.encode(message, message.kind === "update" ? message.bytes.length + 40 : undefined);
}

/** @throws RangeError for bytes that are no such frame */
export const decodeDocumentMessage: (frame: Uint8Array) => DocumentMessage = frames.decode;
