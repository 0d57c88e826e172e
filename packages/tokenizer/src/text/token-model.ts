/** Turns a piece of text into tokens: the `model` of a tokenizer.json. */
export interface TokenModel {
  /** Appends the tokens of a non-empty piece. */
  encode(piece: string, buffer: TokenBuffer): void;
  idOf(token: string): number | undefined;
  readonly vocabularySize: number;
}

/** Names of the tokens for single bytes in a vocabulary with byte fallback. */
export const byteTokenName = (byte: number): string => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

/** A reusable, growing row of token ids. Taking returns a copy and empties it. */
export type TokenBuffer = ReturnType<typeof createTokenBuffer>;

export function createTokenBuffer() {
  let ids = new Uint32Array(1_024);
  let length = 0;
  const reserve = (more: number): void => {
    if (length + more <= ids.length) return;
    const larger = new Uint32Array(Math.max(ids.length * 2, length + more));
    larger.set(ids.subarray(0, length));
    ids = larger;
  };
  return {
    push(id: number): void {
      if (length === ids.length) reserve(1);
      ids[length++] = id;
    },
    pushAll(more: ArrayLike<number>): void {
      reserve(more.length);
      for (let index = 0; index < more.length; index++) ids[length + index] = more[index]!;
      length += more.length;
    },
    get length(): number {
      return length;
    },
    take(): Uint32Array {
      const taken = ids.slice(0, length);
      length = 0;
      return taken;
    },
    /** Like `take`, as a plain array, which is far cheaper for the few tokens of a word. */
    takeList(): readonly number[] {
      const taken: number[] = [];
      for (let index = 0; index < length; index++) taken.push(ids[index]!);
      length = 0;
      return taken;
    },
  };
}

/** Words per generation. Two generations take some 15 MB. */
const maxWords = 32_768;
/** Longer words repeat too rarely. */
export const maxCachedWordLength = 48;

/** V8 keeps a substring of this length or more as a reference, which keeps the whole text alive. */
const minSliceLength = 13;

/**
 * The tokens of recently seen words: an id, or several. Two generations: words that are not used while one fills up are
 * dropped with the next.
 */
export function createWordCache(limit = maxWords) {
  let young = new Map<string, number | readonly number[]>();
  let old = new Map<string, number | readonly number[]>();
  const put = (word: string, tokens: number | readonly number[]): void => {
    if (young.size >= limit) {
      old = young;
      young = new Map();
    }
    young.set(word, tokens);
  };
  return {
    get(word: string): number | readonly number[] | undefined {
      const found = young.get(word);
      if (found !== undefined) return found;
      const before = old.get(word);
      if (before !== undefined) put(word, before);
      return before;
    },
    set(word: string, tokens: number | readonly number[]): void {
      put(word.length < minSliceLength ? word : Buffer.from(word, "utf16le").toString("utf16le"), tokens);
    },
    /** Number of words. */
    get size(): number {
      return young.size + old.size;
    },
  };
}

/** The character that represents each byte in a byte-level vocabulary (Radford et al., GPT-2, `bytes_to_unicode`). */
export const byteAlphabet: readonly string[] = (() => {
  const isPrinted = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrinted(byte) ? byte : next++));
})();

const encoder = new TextEncoder();

/** The UTF-8 bytes of a text, in the characters of a byte-level vocabulary. */
export function inByteAlphabet(text: string): string {
  let mapped = "";
  for (const byte of encoder.encode(text)) mapped += byteAlphabet[byte];
  return mapped;
}
