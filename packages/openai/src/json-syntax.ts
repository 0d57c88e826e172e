import { skipWhitespace } from "./json-scan.ts";

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;

const numberToken = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const escapeSequence = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

/**
 * Where a text that `JSON.parse` refused breaks the grammar. V8 gives the position in some of its messages only, and
 * quotes the text around it in others, so it is found here. Runs on refused bodies only.
 *
 * @param text the body decoded as Latin-1
 * @returns offset in bytes of the first token that cannot stand there; the length of the text when it ends too early
 */
export function syntaxErrorAt(text: string): number {
  /** Closing brackets that are due, innermost last. */
  const due: number[] = [];
  let at = skipWhitespace(text, 0);
  for (;;) {
    const code = text.charCodeAt(at);
    if (code === openBrace || code === openBracket) {
      const close = code + 2;
      at = skipWhitespace(text, at + 1);
      if (text.charCodeAt(at) !== close) {
        due.push(close);
        if (close !== closeBrace) continue;
        at = keyEnd(text, at);
        if (at < 0) return ~at;
        continue;
      }
      at++;
    } else {
      at = scalarEnd(text, at);
      if (at < 0) return ~at;
    }
    at = nextValue(text, at, due);
    if (at < 0) return ~at;
  }
}

/** From behind a value to the next one. A result below 0 is the complement of where the error stands. */
function nextValue(text: string, from: number, due: number[]): number {
  let at = skipWhitespace(text, from);
  while (due.length > 0 && text.charCodeAt(at) === due[due.length - 1]) {
    due.pop();
    at = skipWhitespace(text, at + 1);
  }
  if (due.length === 0 || text.charCodeAt(at) !== comma) return ~at;
  at = skipWhitespace(text, at + 1);
  return due[due.length - 1] === closeBrace ? keyEnd(text, at) : at;
}

/** From the start of a key to behind its colon. */
function keyEnd(text: string, from: number): number {
  if (text.charCodeAt(from) !== quote) return ~from;
  const end = stringEnd(text, from);
  if (end < 0) return end;
  const at = skipWhitespace(text, end);
  return text.charCodeAt(at) === colon ? skipWhitespace(text, at + 1) : ~at;
}

function scalarEnd(text: string, from: number): number {
  if (text.charCodeAt(from) === quote) return stringEnd(text, from);
  for (const word of ["true", "false", "null"]) if (text.startsWith(word, from)) return from + word.length;
  numberToken.lastIndex = from;
  return numberToken.test(text) ? numberToken.lastIndex : ~from;
}

function stringEnd(text: string, from: number): number {
  let at = from + 1;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) return at + 1;
    if (code < 0x20) return ~at;
    if (code !== backslash) continue;
    escapeSequence.lastIndex = at;
    if (!escapeSequence.test(text)) return ~at;
    at = escapeSequence.lastIndex - 1;
  }
  return ~at;
}
