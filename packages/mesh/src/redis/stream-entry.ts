import { ByteReader, ByteWriter } from "@espalier/common";
import type { DocumentUpdate } from "@espalier/replication";

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
