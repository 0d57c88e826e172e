import { createHmac, timingSafeEqual } from "node:crypto";
import { ByteReader, ByteWriter } from "@espalier/common";
import { frameTypes } from "./frame-types.ts";

/** Who began the connection. The two prove different things, so that neither can send the other's proof back. */
export type HandshakeRole = "dialer" | "acceptor";

/** All that both ends have said before they prove that they know the secret. */
export interface Transcript {
  readonly dialerHello: Uint8Array;
  readonly acceptorHello: Uint8Array;
  readonly version: number;
}

const proofBytes = 32;
const context = new TextEncoder().encode("espalier mesh proof\0");

/**
 * Writes a proof frame: HMAC-SHA256 (RFC 2104) with the cluster's secret over the role and both hello frames as they
 * were sent. They hold both nonces, so a proof is good for one handshake only, and both identities, so it is good for
 * one pair.
 */
export function encodeProof(secret: string, role: HandshakeRole, transcript: Transcript): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(frameTypes.proof);
  writer.raw(proofOf(secret, role, transcript));
  return writer.copy();
}

/**
 * Whether a proof frame is that of the end with this role. The comparison takes the same time wherever they differ.
 *
 * @throws RangeError for a frame of the wrong length
 */
export function verifyProof(frame: Uint8Array, secret: string, role: HandshakeRole, transcript: Transcript): boolean {
  const reader = new ByteReader(frame);
  reader.u8();
  const proof = reader.raw(proofBytes);
  reader.end();
  return timingSafeEqual(proof, proofOf(secret, role, transcript));
}

function proofOf(secret: string, role: HandshakeRole, transcript: Transcript): Uint8Array {
  const writer = new ByteWriter(1_024);
  writer.raw(context);
  writer.u8(role === "dialer" ? 1 : 2);
  writer.varint(transcript.version);
  writer.bytes(transcript.dialerHello);
  writer.bytes(transcript.acceptorHello);
  return createHmac("sha256", secret).update(writer.copy()).digest();
}
