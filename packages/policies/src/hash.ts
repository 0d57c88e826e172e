import { mixWord } from "@espalier/core";

/**
 * MurmurHash3 x86_32 (Appleby, 2011) over the UTF-16 code units of a string, low byte first. It need not withstand an
 * adversary: a client that picks its own session keys controls only where its own sessions go, and the load bound holds
 * regardless.
 *
 * @param seed any 32-bit number; different seeds give unrelated hashes
 * @returns an unsigned 32-bit integer
 */
export function hashString(text: string, seed: number): number {
  const { length } = text;
  let hash = seed | 0;
  let at = 0;
  for (; at + 1 < length; at += 2) {
    hash ^= scramble(text.charCodeAt(at) | (text.charCodeAt(at + 1) << 16));
    hash = (hash << 13) | (hash >>> 19);
    hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
  }
  if (at < length) hash ^= scramble(text.charCodeAt(at));
  return mixWord(hash ^ (length * 2));
}

function scramble(unit: number): number {
  const product = Math.imul(unit, 0xcc9e2d51);
  return Math.imul((product << 15) | (product >>> 17), 0x1b873593);
}
