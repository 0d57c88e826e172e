import { ByteReader, ByteWriter } from "@espalier/common";

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
