import { asRouterId, ByteReader, ByteWriter } from "@espalier/common";
import type { Origin } from "@espalier/replication";

const envelopeVersion = 1;
const maxRouterBytes = 512;

/** Says who sends gauges, so that a router knows its own when the channel brings them back. */
export function encodeLoadEnvelope({ router, epoch }: Origin, frame: Uint8Array): Uint8Array<ArrayBuffer> {
  const writer = new ByteWriter(frame.length + router.length + 16);
  writer.u8(envelopeVersion);
  writer.text(router);
  writer.varint(epoch);
  writer.raw(frame);
  return writer.copy();
}

/** @throws RangeError for bytes that are no envelope of this version */
export function decodeLoadEnvelope(bytes: Uint8Array, maxBytes: number): { origin: Origin; frame: Uint8Array } {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const reader = new ByteReader(bytes);
  if (reader.u8() !== envelopeVersion) throw new RangeError("an envelope of another version");
  const router = asRouterId(reader.text(maxRouterBytes));
  const epoch = reader.varint();
  return { origin: { router, epoch }, frame: reader.raw(reader.remaining) };
}
