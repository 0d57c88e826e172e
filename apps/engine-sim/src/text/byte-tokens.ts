import { firstPieceToken, firstSpecialToken, specialTokenText } from "./special-tokens.ts";

/**
 * Builds a prompt of tokens from texts and special tokens. A text is cut into pieces of four UTF-8 bytes counted from
 * its start; a piece is the token whose id is those bytes as a big-endian number. What is left over at the end, and
 * pieces whose number would collide with the ids below 512, become tokens of one byte each.
 */
export interface TokenWriter {
  text(text: string): void;
  token(id: number): void;
  /** The tokens so far. */
  finish(): Uint32Array;
}

const pieceBytes = 4;

export function createTokenWriter(): TokenWriter {
  let tokens = new Uint32Array(256);
  let length = 0;

  const reserve = (more: number): void => {
    if (length + more <= tokens.length) return;
    const grown = new Uint32Array(Math.max(tokens.length * 2, length + more));
    grown.set(tokens.subarray(0, length));
    tokens = grown;
  };
  const token = (id: number): void => {
    reserve(1);
    tokens[length++] = id;
  };
  return {
    token,
    text(text) {
      const bytes = Buffer.from(text, "utf8");
      const wholeBytes = bytes.length - (bytes.length % pieceBytes);
      // Room for the common case; a colliding piece takes four tokens and reserves them itself.
      reserve(wholeBytes / pieceBytes + pieceBytes);
      for (let at = 0; at < wholeBytes; at += pieceBytes) {
        const high = ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
        const id = ((high << 16) | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number)) >>> 0;
        if (id >= firstPieceToken) tokens[length++] = id;
        else {
          reserve((wholeBytes - at) / pieceBytes + 2 * pieceBytes);
          for (let byte = at; byte < at + pieceBytes; byte++) tokens[length++] = bytes[byte] as number;
        }
      }
      for (let at = wholeBytes; at < bytes.length; at++) token(bytes[at] as number);
    },
    finish: () => tokens.slice(0, length),
  };
}

/** The tokens of one text. */
export function encodeText(text: string): Uint32Array {
  const writer = createTokenWriter();
  writer.text(text);
  return writer.finish();
}

/**
 * The text of tokens. For the tokens of a text this is exactly that text; for any other ids it is what their bytes say,
 * with U+FFFD where they are not UTF-8, and with special tokens by name.
 */
export function decodeTokens(tokens: Iterable<number>): string {
  const parts: Buffer[] = [];
  for (const id of tokens) {
    if (id < firstSpecialToken) parts.push(Buffer.of(id));
    else if (id < firstPieceToken) parts.push(Buffer.from(specialTokenText(id), "utf8"));
    else parts.push(Buffer.of(id >>> 24, id >>> 16, id >>> 8, id));
  }
  return Buffer.concat(parts).toString("utf8");
}
