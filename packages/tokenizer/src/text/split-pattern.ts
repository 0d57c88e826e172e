import { SplitPreTokenizer } from "@huggingface/tokenizers";
import type { TokenizerPart } from "./tokenizer-part.ts";
import { textForPatterns } from "./unicode.ts";

declare module "@huggingface/tokenizers" {
  /** Node's resolution rules do not find the library's own declarations. */
  export class SplitPreTokenizer {
    constructor(config: object);
    readonly pattern: RegExp | null;
  }
}

/** Matches of a pattern in a text, as found by the reference's Oniguruma. */
export interface SplitPattern {
  /**
   * Ends of all pieces (matches and the text between them) in order; a match's end is negated. An empty match at the
   * start ends at -0, and nothing else ends there.
   */
  find(text: string): readonly number[];
  /** Matches and the text between them, in order. */
  isolate(text: string): readonly string[];
  /** Replaces every match. */
  replace(text: string, replacement: string): string;
}

/**
 * Reads `{"Regex": ...}` or `{"String": ...}` under `pattern`.
 *
 * @throws EspalierError `config_invalid` for a pattern that cannot be translated to JavaScript
 */
export function readPattern(part: TokenizerPart): SplitPattern {
  const written = part.raw.pattern;
  if (typeof written !== "object" || written === null) throw part.wrong("has no pattern");
  if ("String" in written && typeof written.String === "string") return literalPattern(written.String);
  if ("Regex" in written && typeof written.Regex === "string") {
    try {
      return expressionPattern(translate(written.Regex));
    } catch (error) {
      throw part.wrong(`has a pattern that cannot be translated (${(error as Error).message})`);
    }
  }
  throw part.wrong("has neither Regex nor String under pattern");
}

/** @param pattern has the flags g and u */
export function expressionPattern(pattern: RegExp): SplitPattern {
  const find = (text: string): readonly number[] => {
    const ends: number[] = [];
    // The reference finds nothing in an empty text, even for patterns that would match there.
    if (text === "") return ends;
    let at = 0;
    for (const match of textForPatterns(text).matchAll(pattern)) {
      // As the reference calls it, Oniguruma finds no empty match directly after another match.
      if (match[0] === "" && match.index === at && ends.length > 0) continue;
      if (match.index > at) ends.push(match.index);
      at = match.index + match[0].length;
      ends.push(-at);
    }
    if (at < text.length) ends.push(text.length);
    return ends;
  };
  return {
    find,
    isolate(text) {
      if (textForPatterns(text) === text) {
        // Patterns of byte-level models match everything, and one call for all matches is by far the fastest.
        const matches = text.match(pattern);
        if (matches && totalLength(matches) === text.length) return matches;
      }
      return cut(text, find(text));
    },
    replace(text, replacement) {
      const pieces: string[] = [];
      let at = 0;
      for (const end of find(text)) {
        pieces.push(end <= 0 ? replacement : text.slice(at, end));
        at = Math.abs(end);
      }
      return pieces.join("");
    },
  };
}

/** The total length of the pieces, or -1 when one of them is empty. */
function totalLength(pieces: readonly string[]): number {
  let sum = 0;
  for (const piece of pieces) {
    if (piece === "") return -1;
    sum += piece.length;
  }
  return sum;
}

function cut(text: string, ends: readonly number[]): readonly string[] {
  const pieces: string[] = [];
  let at = 0;
  for (const end of ends) {
    const to = Math.abs(end);
    if (to > at) pieces.push(text.slice(at, to));
    at = to;
  }
  return pieces;
}

/** A pattern that matches one text literally. */
export function literalPattern(literal: string): SplitPattern {
  const find = (text: string): readonly number[] => {
    const ends: number[] = [];
    let at = 0;
    for (let found = text.indexOf(literal); found >= 0 && literal !== ""; found = text.indexOf(literal, at)) {
      if (found > at) ends.push(found);
      at = found + literal.length;
      ends.push(-at);
    }
    if (at < text.length) ends.push(text.length);
    return ends;
  };
  return {
    find,
    isolate: (text) => cut(text, find(text)),
    replace: (text, replacement) => (literal === "" ? text : text.replaceAll(literal, () => replacement)),
  };
}

/**
 * The library translates Oniguruma's syntax to JavaScript's. But in groups that ignore case it folds only ASCII
 * letters, whereas Oniguruma also matches the long s with s and the kelvin sign with k.
 */
function translate(expression: string): RegExp {
  const folded = expression.replace(/\(\?i:((?:[^()\\]|\\.)*)\)/g, (_, body: string) => {
    return `(?i:${body.replace(/\[[^\]]*\]|\\.|[sSkK]/g, widen)})`;
  });
  const { pattern } = new SplitPreTokenizer({
    type: "Split",
    pattern: { Regex: folded },
    behavior: "Isolated",
    invert: true,
  });
  if (!pattern) throw new SyntaxError("no pattern");
  return pattern;
}

function widen(atom: string): string {
  if (atom.startsWith("\\")) return atom;
  const inClass = atom.startsWith("[");
  const body = inClass ? atom.slice(1, -1) : atom;
  return `[${body}${/[sS]/.test(body) ? "\\u017F" : ""}${/[kK]/.test(body) ? "\\u212A" : ""}]`;
}
