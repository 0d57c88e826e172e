/** A run of bytes: `start` inclusive, `end` exclusive. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** One member of a scanned object. Offsets count bytes of the body. */
export interface Member {
  /** Behind the opening quote of the key. */
  readonly keyStart: number;
  /** At the closing quote of the key. */
  readonly keyEnd: number;
  readonly valueStart: number;
  /** Behind the value; equal to `valueStart` when the text ends inside it. */
  readonly valueEnd: number;
}

const quote = 0x22;
const comma = 0x2c;
const digitNine = 0x39;
const colon = 0x3a;
const backslash = 0x5c;
/** `[` and `{` differ in this bit only, and so do `]` and `}`. */
const bracketBit = 0x20;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/**
 * Finds the members of the JSON object at `start` in one pass, without parsing it: strings are skipped with a native
 * search, everything else is looked at once. The answer is right for valid JSON; for anything else it is only safe,
 * and the caller must have `JSON.parse` decide.
 *
 * @param text the body decoded as Latin-1, so that an offset in it is an offset in bytes
 * @param start where the value, or white space in front of it, begins
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
    // Inside arrays of numbers nearly everything is a digit, a comma or a space.
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

/** Where the string that opens at `open` closes, or -1 when it does not. */
export function closingQuote(text: string, open: number): number {
  let close = open;
  for (;;) {
    close = text.indexOf('"', close + 1);
    if (close < 0) return -1;
    let run = close - 1;
    while (text.charCodeAt(run) === backslash) run--;
    // An even number of backslashes in front of the quote escape each other, not the quote.
    if (((close - run) & 1) === 1) return close;
  }
}

/** The first offset at or behind `at` that holds no JSON white space. */
export function skipWhitespace(text: string, at: number): number {
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
