/**
 * Tokens and hashes are read as bytes and as words of the same memory, which means the same on little-endian processors
 * only (all that Node.js runs on, but for s390x and AIX).
 *
 * @param probe the number 1 as this processor lays it out
 * @throws Error on another processor
 */
export function requireLittleEndian(probe: Uint8Array = new Uint8Array(Uint32Array.of(1).buffer)): void {
  if (probe[0] !== 1) throw new Error("Hashing needs a little-endian processor, and this one is not");
}
