import { ByteReader, ByteWriter } from "@espalier/common";
import type { DocumentUpdate } from "@espalier/replication";

const headerVersion = 1;

/** What stands before the pieces of a blob. */
export interface BlobHeader {
  /** Number of the last entry of the stream that the blob covers. */
  readonly coveredId: number;
  readonly pieces: number;
}

export function encodeBlobHeader({ coveredId, pieces }: BlobHeader): Uint8Array {
  const writer = new ByteWriter(32);
  writer.u8(headerVersion);
  writer.varint(coveredId);
  writer.varint(pieces);
  return writer.copy();
}

/** @throws RangeError for bytes that no writer writes, and for more pieces than `maxPieces` */
export function decodeBlobHeader(bytes: Uint8Array, maxPieces: number): BlobHeader {
  const reader = new ByteReader(bytes);
  if (reader.u8() !== headerVersion) throw new RangeError("a blob of another version");
  const coveredId = reader.varint();
  const pieces = reader.varint();
  reader.end();
  if (pieces > maxPieces) throw new RangeError(`a blob of ${pieces} pieces`);
  return { coveredId, pieces };
}

const entryVersion = 1;
const maxNameBytes = 512;

/** An update as it stands in a stream or a blob, with the writer's wall clock in milliseconds. */
export interface StreamEntry {
  readonly update: DocumentUpdate;
  readonly sentMs: number;
}

export function encodeStreamEntry({ update, sentMs }: StreamEntry): Uint8Array<ArrayBuffer> {
  const writer = new ByteWriter(update.bytes.length + update.name.length + 32);
  writer.u8(entryVersion);
  writer.varint(Math.max(0, Math.floor(sentMs)));
  writer.text(update.name);
  writer.varint(update.from);
  writer.varint(update.to);
  writer.raw(update.bytes);
  return writer.copy();
}

/** @throws RangeError for bytes that are no entry of this version */
export function decodeStreamEntry(bytes: Uint8Array, maxBytes: number): StreamEntry {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const reader = new ByteReader(bytes);
  if (reader.u8() !== entryVersion) throw new RangeError("an entry of another version");
  const sentMs = reader.varint();
  const name = reader.text(maxNameBytes);
  const from = reader.varint();
  const to = reader.varint();
  if (name === "" || to < from) throw new RangeError("an entry of no document");
  return { update: { name, from, to, bytes: reader.raw(reader.remaining) }, sentMs };
}
