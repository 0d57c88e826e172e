import { mixWord } from "@espalier/core";

/** 32 bits of a text, the same in every process. */
export function textBits(text: string): number {
  let bits = text.length;
  for (let at = 0; at < text.length; at++) bits = mixWord(Math.imul(bits, 31) + text.charCodeAt(at));
  return bits;
}
