import { readCharactersMap } from "./characters-map.ts";
import { readPattern } from "./split-pattern.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";
import { normalizeAsReference } from "./unicode-age.ts";
import { isWhiteSpace } from "./white-space.ts";

/** Rewrites a stretch of text that holds no added token. */
export type Normalizer = (text: string) => string;

/**
 * The `normalizer` of a tokenizer.json.
 *
 * @returns undefined when there is none
 * @throws EspalierError `config_invalid`
 */
export function readNormalizer(value: unknown): Normalizer | undefined {
  if (value === null || value === undefined) return undefined;
  return normalizerOf(tokenizerPart(value, "normalizer"));
}

function normalizerOf(part: TokenizerPart): Normalizer {
  switch (part.type) {
    case "Sequence": {
      const steps = part.parts("normalizers").map(normalizerOf);
      return (text) => steps.reduce((rewritten, step) => step(rewritten), text);
    }
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD": {
      const form = part.type;
      return (text) => normalizeAsReference(text, form);
    }
    case "Replace": {
      const pattern = readPattern(part);
      const content = part.text("content");
      return (text) => pattern.replace(text, content);
    }
    case "Prepend": {
      const prepended = part.text("prepend");
      return (text) => (text === "" ? text : prepended + text);
    }
    case "Strip": {
      const [left, right] = [part.flag("strip_left", true), part.flag("strip_right", true)];
      return (text) => strip(text, left, right);
    }
    case "Lowercase":
      // The reference lowers one character at a time, so a final sigma is as any other.
      return (text) =>
        text
          .split("Σ")
          .map((run) => run.toLowerCase())
          .join("σ");
    case "Nmt":
      return (text) => text.replace(nmtRemoved, "").replace(nmtSpaces, " ");
    case "Precompiled":
      return readCharactersMap(part);
    default:
      throw part.wrong(`is a ${part.type || "part without a type"}, which is not supported`);
  }
}

/** Tables of the NMT rules of SentencePiece, as the reference has them. */
const nmtRemoved = /[\u0001-\u0008\u000B\u000E-\u001F\u007F\u008F\u009F]/g;
const nmtSpaces = /[\t\n\f\r\u1680\u200B-\u200F\u2028\u2029\u2581\uFEFF\uFFFD]/g;

function strip(text: string, left: boolean, right: boolean): string {
  let start = 0;
  let end = text.length;
  while (left && start < end && isWhiteSpace(text.charCodeAt(start))) start++;
  while (right && end > start && isWhiteSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}
