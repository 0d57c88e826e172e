/** Spreads 32 bits over 32 bits, one to one: the last step of MurmurHash3 (Appleby). Not for hostile inputs. */
export function mixBits(value: number): number {
  let mixed = value | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85eb_ca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2_ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** 32 bits of a text, the same in every process. */
export function textBits(text: string): number {
  let bits = text.length;
  for (let at = 0; at < text.length; at++) bits = mixBits(Math.imul(bits, 31) + text.charCodeAt(at));
  return bits;
}
