import { randomBytes } from "node:crypto";

/** Bytes of a nonce. */
export const nonceBytes = 32;

/**
 * A nonce for one handshake. It comes from the system's secure source and not from the Random port, because an observer
 * of one nonce must not be able to guess the next; nothing a router does depends on its value.
 */
export function createNonce(): Uint8Array {
  return randomBytes(nonceBytes);
}
