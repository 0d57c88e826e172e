import { ByteReader, ByteWriter } from "@espalier/core";
import type { FoldStatement } from "../replica-ports.ts";

/** Bytes of a document's name, of a target's key, and of an epoch's id, at most. */
const maxNameBytes = 1024;
/** Bytes of a state vector. That of a shared document has an entry per epoch of a router. */
const maxStateVectorBytes = 64 * 1024;
/** Entries of one vector, statements and targets of one frame: the sender's own bounds are no higher. */
const maxEntries = 4096;

const types = { open: 1, update: 2, vector: 3, want: 4, cancel: 5, "snapshot-want": 6, statements: 7 } as const;

/** `own`: the sender writes it. `shared`: many routers write it, so it has no clock. */
export type DocumentKind = "journal" | "own" | "shared";
const kinds: readonly DocumentKind[] = ["journal", "own", "shared"];

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
export interface CancelMessage {
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

/** Every frame starts with its type; numbers are varints, texts and byte strings follow their length. */
export function encodeDocumentMessage(message: DocumentMessage): Uint8Array {
  const writer = new ByteWriter(message.kind === "update" ? message.bytes.length + 40 : 64);
  writer.u8(types[message.kind]);
  writeBody(writer, message);
  return writer.copy();
}

function writeBody(writer: ByteWriter, message: DocumentMessage): void {
  switch (message.kind) {
    case "open":
      writer.varint(message.number);
      writer.u8(kinds.indexOf(message.documentKind));
      writer.text(message.name);
      break;
    case "update":
      writer.varint(message.number);
      writer.varint(message.from);
      writer.varint(message.to - message.from);
      writer.varint(message.committedWallMs);
      writer.raw(message.bytes);
      break;
    case "vector":
      writer.u8((message.isFirst ? 1 : 0) | (message.canServe ? 2 : 0));
      writer.varint(message.entries.length);
      for (const { number, version } of message.entries) {
        writer.varint(number);
        writer.varint(version);
      }
      break;
    case "want":
      writer.varint(message.request);
      writer.text(message.name);
      writer.raw(message.stateVector);
      break;
    case "cancel":
      writer.varint(message.request);
      break;
    case "snapshot-want":
      writer.varint(message.request);
      writer.u8(message.targets === undefined ? 0 : 1);
      if (message.targets === undefined) break;
      writer.varint(message.targets.length);
      for (const target of message.targets) writer.text(target);
      break;
    case "statements":
      writer.varint(message.statements.length);
      for (const statement of message.statements) writeStatement(writer, statement);
  }
}

function writeStatement(writer: ByteWriter, statement: FoldStatement): void {
  writer.text(statement.target);
  writer.text(statement.epoch);
  writer.varint(statement.sequence);
  writer.u8(statement.isComplete ? 1 : 0);
  writer.varint(statement.blocks);
  writer.u32(statement.digest[0]);
  writer.u32(statement.digest[1]);
}

/** @throws RangeError for bytes that are no such frame */
export function decodeDocumentMessage(frame: Uint8Array): DocumentMessage {
  const reader = new ByteReader(frame);
  const message = readBody(reader, reader.u8());
  reader.end();
  return message;
}

function readBody(reader: ByteReader, type: number): DocumentMessage {
  switch (type) {
    case types.open:
      return readOpen(reader);
    case types.update:
      return readUpdate(reader);
    case types.vector:
      return readVector(reader);
    case types.want: {
      const request = reader.varint();
      const name = reader.text(maxNameBytes);
      if (reader.remaining > maxStateVectorBytes) throw new RangeError("a state vector is too long");
      return { kind: "want", request, name, stateVector: reader.raw(reader.remaining) };
    }
    case types.cancel:
      return { kind: "cancel", request: reader.varint() };
    case types["snapshot-want"]: {
      const request = reader.varint();
      const targets = flag(reader) ? readList(reader, () => reader.text(maxNameBytes)) : undefined;
      return { kind: "snapshot-want", request, targets };
    }
    case types.statements:
      return { kind: "statements", statements: readList(reader, () => readStatement(reader)) };
    default:
      throw new RangeError(`no message has the type ${type}`);
  }
}

function readOpen(reader: ByteReader): OpenMessage {
  const number = reader.varint();
  const documentKind = kinds[reader.u8()];
  if (documentKind === undefined) throw new RangeError("an unknown kind of document");
  const name = reader.text(maxNameBytes);
  if (name === "") throw new RangeError("a document without a name");
  return { kind: "open", number, documentKind, name };
}

function readUpdate(reader: ByteReader): UpdateMessage {
  const number = reader.varint();
  const from = reader.varint();
  const to = from + reader.varint();
  if (!Number.isSafeInteger(to)) throw new RangeError("a clock is too large");
  const committedWallMs = reader.varint();
  return { kind: "update", number, from, to, committedWallMs, bytes: reader.raw(reader.remaining) };
}

function readVector(reader: ByteReader): VectorMessage {
  const flags = reader.u8();
  if (flags > 3) throw new RangeError("unknown flags of a vector");
  const entries = readList(reader, () => ({ number: reader.varint(), version: reader.varint() }));
  return { kind: "vector", isFirst: (flags & 1) !== 0, canServe: (flags & 2) !== 0, entries };
}

function readStatement(reader: ByteReader): FoldStatement {
  return {
    target: reader.text(maxNameBytes),
    epoch: reader.text(maxNameBytes),
    sequence: reader.varint(),
    isComplete: flag(reader),
    blocks: reader.varint(),
    digest: [reader.u32(), reader.u32()],
  };
}

function flag(reader: ByteReader): boolean {
  const value = reader.u8();
  if (value > 1) throw new RangeError("a flag is neither 0 nor 1");
  return value === 1;
}

function readList<Item>(reader: ByteReader, read: () => Item): Item[] {
  const count = reader.varint();
  if (count > maxEntries) throw new RangeError(`${count} entries where ${maxEntries} are the most`);
  const items: Item[] = [];
  for (let index = 0; index < count; index++) items.push(read());
  return items;
}
