/** FNV-1a of a text's UTF-16 units, 32 bits: the same in every process. @param seed another seed gives another hash */
export function fnv1a(text: string, seed = 0): number {
  let hash = 0x811c9dc5 ^ seed;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}

/** FNV-1a of bytes, or of words of 32 bits as if each was one byte. */
export function fnv1aOf(words: Uint8Array | Uint32Array): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < words.length; at++) hash = Math.imul(hash ^ words[at]!, 0x01000193);
  return hash >>> 0;
}

/**
 * A 32-bit hash of a text: FNV-1a, then the finalizer of MurmurHash3 (Appleby, 2011). Without the finalizer texts that
 * differ in their last letters would stay close together.
 *
 * @param seed another seed gives an unrelated hash
 */
export function hashText(text: string, seed = 0): number {
  return mixWord(fnv1a(text, seed));
}

/** Spreads every bit of a word over all 32, one to one. */
export function mixWord(word: number): number {
  let mixed = word;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
