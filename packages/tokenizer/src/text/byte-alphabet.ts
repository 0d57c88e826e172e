/** The character that stands for each byte in a byte-level vocabulary (Radford et al., GPT-2, `bytes_to_unicode`). */
export const byteAlphabet: readonly string[] = (() => {
  const isPrinted = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrinted(byte) ? byte : next++));
})();

const encoder = new TextEncoder();

/** The UTF-8 bytes of a text in the characters of a byte-level vocabulary. */
export function inByteAlphabet(text: string): string {
  let mapped = "";
  for (const byte of encoder.encode(text)) mapped += byteAlphabet[byte];
  return mapped;
}
