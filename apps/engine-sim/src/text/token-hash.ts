const fnvOffset = 0x811c9dc5;
const fnvPrime = 0x01000193;

/** 32 bits that depend on every token and its place (FNV-1a over whole tokens, then mixed). */
export function hashTokens(tokens: Uint32Array): number {
  let hash = fnvOffset;
  for (let at = 0; at < tokens.length; at++) hash = Math.imul(hash ^ (tokens[at] as number), fnvPrime);
  return mixBits(hash);
}

/** Like `hashTokens`, over the UTF-16 code units of a text. */
export function hashText(text: string): number {
  let hash = fnvOffset;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), fnvPrime);
  return mixBits(hash);
}

/** Spreads 32 bits so that neighbouring inputs give unrelated outputs (the finaliser of MurmurHash3). */
export function mixBits(value: number): number {
  let z = value | 0;
  z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
  z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
  return (z ^ (z >>> 16)) >>> 0;
}

/** A number in [0, 1) drawn from a hash, another one for each `purpose`. */
export function unitDraw(hash: number, purpose: number): number {
  return mixBits(hash ^ mixBits(purpose)) / 0x1_0000_0000;
}
