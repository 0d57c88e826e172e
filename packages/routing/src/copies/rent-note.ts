import { ByteReader, ByteWriter } from "@espalier/common";
import { maxRentMs, maxToldRents, type RentPart } from "./copy-rents.ts";

const version = 1;

/** Layout: version, a byte; number of parts as a varint; of each its key, four bytes, and whole milliseconds as a signed varint. */
export function writeRentNote(parts: readonly RentPart[]): Uint8Array {
  const writer = new ByteWriter(2 + 8 * parts.length);
  writer.u8(version);
  writer.varint(parts.length);
  for (const { key, paidMs } of parts) {
    writer.u32(key);
    writer.signedVarint(Math.round(paidMs));
  }
  return writer.copy();
}

/**
 * Bytes behind the parts are left alone, so that a later version may add to it.
 *
 * @throws RangeError for bytes that are no such note
 */
export function readRentNote(bytes: Uint8Array): readonly RentPart[] {
  const reader = new ByteReader(bytes);
  const found = reader.u8();
  if (found !== version) throw new RangeError(`version ${found} is not known`);
  const count = reader.varint();
  if (count > maxToldRents) throw new RangeError(`${count} rents are too many`);
  return Array.from({ length: count }, () => {
    const part = { key: reader.u32(), paidMs: reader.signedVarint() };
    if (Math.abs(part.paidMs) > maxRentMs) throw new RangeError(`a rent of ${part.paidMs} ms is too large`);
    return part;
  });
}
