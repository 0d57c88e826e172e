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
/** Secrets that a router knows at once: its own, and those that others still have or have already. */
export const maxSecrets = 4;
const context = new TextEncoder().encode("espalier mesh proof\0");

/**
 * Writes a proof frame: for each secret, HMAC-SHA256 (RFC 2104) over the role and both hello frames as they were sent.
 * They hold both nonces, so a proof is good for one handshake only, and both identities, so it is good for one pair.
 */
export function encodeProof(secrets: readonly string[], role: HandshakeRole, transcript: Transcript): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(frameTypes.proof);
  for (const secret of secrets) writer.raw(proofOf(secret, role, transcript));
  return writer.copy();
}

/**
 * The first secret that a proof frame proves, of those that are known here. Every proof is compared with every secret, and
 * each comparison takes the same time wherever they differ.
 *
 * @returns undefined when it proves none
 * @throws RangeError for a frame of the wrong length
 */
export function provedSecret(
  frame: Uint8Array,
  secrets: readonly string[],
  role: HandshakeRole,
  transcript: Transcript,
): string | undefined {
  const count = (frame.length - 1) / proofBytes;
  if (!Number.isInteger(count) || count < 1 || count > maxSecrets)
    throw new RangeError(`a proof of ${frame.length} bytes`);
  const reader = new ByteReader(frame);
  reader.u8();
  const expected = secrets.map((secret) => proofOf(secret, role, transcript));
  let proved: string | undefined;
  for (let at = 0; at < count; at++) {
    const proof = reader.raw(proofBytes);
    const matching = secrets.filter((_, index) => timingSafeEqual(proof, expected[index]!));
    proved ??= matching[0];
  }
  return proved;
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
