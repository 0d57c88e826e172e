import { isObject, type JsonObject } from "../api/body-fields.ts";

/** One step from the names of tokens to text, as Hugging Face's tokenizers chain them. */
type Step = (parts: readonly string[]) => readonly string[];

/** The text of token ids; ids without a name are nothing. */
export type TokenDecoder = (tokens: Iterable<number>) => string;

/**
 * Reads the `decoder` of a tokenizer.json.
 *
 * @param names of all tokens, by id
 * @throws RangeError for a decoder of another kind than byte-level and SentencePiece tokenizers have
 */
export function createTokenDecoder(decoder: unknown, names: ReadonlyMap<number, string>): TokenDecoder {
  // Without a decoder the library joins tokens as if they were words.
  const step: Step = isObject(decoder) ? stepOf(decoder) : (parts) => [parts.join(" ")];
  return (tokens) => {
    const parts = Array.from(tokens, (token) => names.get(token)).filter((name) => name !== undefined);
    return step(parts).join("");
  };
}

function stepOf(decoder: JsonObject): Step {
  switch (decoder.type) {
    case "ByteLevel":
      return (parts) => [fromByteAlphabet(parts)];
    case "Metaspace": {
      const replacement = String(decoder.replacement ?? "▁");
      const dropsFirst = decoder.prepend_scheme !== "never" && decoder.add_prefix_space !== false;
      return (parts) =>
        parts.map((part, at) => {
          const rest = at === 0 && dropsFirst && part.startsWith(replacement) ? part.slice(replacement.length) : part;
          return rest.replaceAll(replacement, " ");
        });
    }
    case "Replace":
      return replacing(decoder);
    case "ByteFallback":
      return fromBytePieces;
    case "Fuse":
      return (parts) => [parts.join("")];
    case "Strip":
      return stripping(decoder);
    case "Sequence": {
      const steps = (Array.isArray(decoder.decoders) ? decoder.decoders : []).map(stepOf);
      return (parts) => steps.reduce((found, step) => step(found), parts);
    }
    default:
      throw new RangeError(`the decoder ${decoder.type} of the tokenizer is not supported`);
  }
}

function replacing({ pattern, content }: JsonObject): Step {
  const { String: text, Regex: source } = isObject(pattern) ? pattern : {};
  const search = typeof source === "string" ? new RegExp(source, "gu") : String(text);
  return (parts) => parts.map((part) => part.replaceAll(search, () => String(content)));
}

function stripping({ content, start, stop }: JsonObject): Step {
  const mark = String(content);
  return (parts) =>
    parts.map((part) => {
      let [from, to] = [0, part.length];
      while (from < Number(start) && part.startsWith(mark, from)) from += mark.length;
      for (let cut = 0; cut < Number(stop) && to > from && part.endsWith(mark, to); cut++) to -= mark.length;
      return part.slice(from, to);
    });
}

/** Runs of pieces like `<0xE2>` are bytes; where they are no UTF-8 each becomes U+FFFD. */
function fromBytePieces(parts: readonly string[]): readonly string[] {
  const found: string[] = [];
  let bytes: number[] = [];
  const flush = (): void => {
    const text = Buffer.from(bytes).toString("utf8");
    if (bytes.length > 0) found.push(text.includes("\uFFFD") ? "\uFFFD".repeat(bytes.length) : text);
    bytes = [];
  };
  for (const part of parts) {
    const [, digits] = /^<0x([0-9A-Fa-f]{2})>$/.exec(part) ?? [];
    if (digits !== undefined) bytes.push(Number.parseInt(digits, 16));
    else {
      flush();
      found.push(part);
    }
  }
  flush();
  return found;
}

/** The byte of each character in a byte-level vocabulary (Radford et al., GPT-2, `bytes_to_unicode`). */
const byteOf: ReadonlyMap<string, number> = (() => {
  const bytes = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 0x100; byte++) {
    const isPrinted = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes.set(String.fromCharCode(isPrinted ? byte : next++), byte);
  }
  return bytes;
})();

/** A part with a character outside the alphabet is an added token, which is text already. */
function fromByteAlphabet(parts: readonly string[]): string {
  const rows = parts.map((part) => {
    const bytes = Array.from(part, (character) => byteOf.get(character));
    return bytes.includes(undefined) ? Buffer.from(part, "utf8") : Buffer.from(bytes as number[]);
  });
  return Buffer.concat(rows).toString("utf8");
}
