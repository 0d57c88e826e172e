import type { TokenBuffer } from "./token-buffer.ts";

/** Turns a piece of text into tokens: the `model` of a tokenizer.json. */
export interface TokenModel {
  /** Appends the tokens of a piece that is not empty. */
  encode(piece: string, buffer: TokenBuffer): void;
  idOf(token: string): number | undefined;
  readonly vocabularySize: number;
}

/** Names of the tokens that stand for single bytes in a vocabulary with byte fallback. */
export const byteTokenName = (byte: number): string => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
