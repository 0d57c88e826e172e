/** A run of bytes: `start` inclusive, `end` exclusive. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** One member of a scanned object. Offsets count bytes of the body. */
export interface Member {
  /** Just after the opening quote of the key. */
  readonly keyStart: number;
  /** At the closing quote of the key. */
  readonly keyEnd: number;
  readonly valueStart: number;
  /** Just after the value; equals `valueStart` when the text ends inside it. */
  readonly valueEnd: number;
}

const quote = 0x22;
const comma = 0x2c;
const digitNine = 0x39;
const colon = 0x3a;

const openBracket = 0x5b;

const backslash = 0x5c;
/** `[` and `{` differ only in this bit, as do `]` and `}`. */
const bracketBit = 0x20;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/**
 * Finds the members of the JSON object at `start` in one pass without parsing it. A native search skips strings; every
 * other byte is read once. The result is right for valid JSON and merely safe for anything else, so the caller must let
 * `JSON.parse` decide.
 *
 * @param text the body decoded as Latin-1, so that offsets in it are byte offsets
 * @param start where the value, or white space before it, begins
 */
export function scanObject(text: string, start: number): readonly Member[] {
  const members: Member[] = [];
  let depth = 0;
  let keyStart = -1;
  let keyEnd = 0;
  let valueStart = 0;
  let at = start;
  const finishMember = (valueEnd: number): void => {
    if (keyStart < 0) return;
    members.push({ keyStart, keyEnd, valueStart, valueEnd });
    keyStart = -1;
  };
  for (const length = text.length; at < length; at++) {
    let code = text.charCodeAt(at);
    // Inside arrays of numbers nearly every byte is a digit, a comma or a space.
    if (depth > 1) while (code <= digitNine && code !== quote) code = text.charCodeAt(++at);
    if (code === quote) {
      const open = at;
      at = closingQuote(text, open);
      if (at < 0) break;
      if (depth !== 1) continue;
      const next = skipWhitespace(text, at + 1);
      if (text.charCodeAt(next) !== colon) continue;
      keyStart = open + 1;
      keyEnd = at;
      valueStart = skipWhitespace(text, next + 1);
      at = valueStart - 1;
    } else if ((code | bracketBit) === openBrace) {
      depth++;
    } else if ((code | bracketBit) === closeBrace) {
      if (--depth > 0) continue;
      finishMember(trimEnd(text, valueStart, at));
      break;
    } else if (code === comma && depth === 1) {
      finishMember(trimEnd(text, valueStart, at));
    }
  }
  finishMember(valueStart);
  return members;
}

/** The key of a member, unescaped. The key must be valid JSON. */
export function memberKey(text: string, member: Member): string {
  const raw = text.slice(member.keyStart, member.keyEnd);
  if (isPlain(raw)) return raw;
  return JSON.parse(Buffer.from(`"${raw}"`, "latin1").toString("utf8")) as string;
}

/**
 * The bytes of one value inside a JSON object, exactly as written, so that 64-bit integers and key order survive.
 *
 * @param body a JSON object
 * @param path keys from the outside in; for an array on the path, its first element is used
 * @returns undefined when the body is no JSON object or has no such value
 */
export function readJsonMember(body: Buffer, path: readonly string[]): string | undefined {
  const text = body.toString("latin1");
  if (!isJson(body)) return undefined;
  let start = 0;
  let end = text.length;
  for (const key of path) {
    // The first element follows the bracket of an array.
    const open = /^\s*(?:\[\s*)?/.exec(text.slice(start, end))?.[0].length ?? 0;
    if (text[start + open] !== "{") return undefined;
    const members = scanObject(text, start + open);
    // Of duplicate keys, readers take the last.
    const member = members.findLast((candidate) => memberKey(text, candidate) === key);
    if (!member) return undefined;
    start = member.valueStart;
    end = member.valueEnd;
  }
  return body.toString("utf8", start, end);
}

/** Offset of the quote that closes the string opened at `open`, or -1 when none does. */
export function closingQuote(text: string, open: number): number {
  let close = open;
  for (;;) {
    close = text.indexOf('"', close + 1);
    if (close < 0) return -1;
    let run = close - 1;
    while (text.charCodeAt(run) === backslash) run--;
    // Backslashes before the quote escape each other, and not the quote, when their number is even.
    if (((close - run) & 1) === 1) return close;
  }
}

/** The first offset at or after `at` without JSON white space. */
function skipWhitespace(text: string, at: number): number {
  let next = at;
  while (isWhitespace(text.charCodeAt(next))) next++;
  return next;
}

function trimEnd(text: string, from: number, end: number): number {
  let trimmed = end;
  while (trimmed > from && isWhitespace(text.charCodeAt(trimmed - 1))) trimmed--;
  return trimmed;
}

function isWhitespace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

/** Whether a key is ASCII without escapes, so that its bytes are its text. */
function isPlain(raw: string): boolean {
  for (let at = 0; at < raw.length; at++) {
    const code = raw.charCodeAt(at);
    if (code === backslash || code > 0x7f) return false;
  }
  return true;
}

/** Whether the whole body is valid JSON: a scan is right only for that. */
function isJson(body: Buffer): boolean {
  try {
    JSON.parse(body.toString("utf8"));
    return true;
  } catch {
    return false;
  }
}

const numberToken = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const escapeSequence = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

/**
 * Finds where a text that `JSON.parse` refused breaks the grammar. V8's messages give the position only sometimes, and
 * otherwise quote the text around it. Runs only on refused bodies.
 *
 * @param text the body decoded as Latin-1
 * @returns byte offset of the first token that is not allowed; the length of the text when it ends too early
 */
export function syntaxErrorAt(text: string): number {
  /** Closing brackets still expected, innermost last. */
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

/** Moves from the end of a value to the next one. A negative result is the complement of the error's offset. */
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

/** Moves from the start of a key past its colon. */
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
