import { EspalierError } from "@espalier/common";

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

export interface ScanLimits {
  /** Levels of nesting; the scanned value itself is level 1. */
  readonly maxDepth: number;
  readonly maxMembers: number;
}

export interface ObjectScan {
  readonly members: readonly Member[];
  /** Whether any object, at any depth, has a key that spells `__proto__`, escaped or not. */
  readonly hasForbiddenKey: boolean;
}

const quote = 0x22;
const comma = 0x2c;
const digitNine = 0x39;
const colon = 0x3a;
const underscore = 0x5f;
const backslash = 0x5c;
/** `[` and `{` differ in this bit only, and so do `]` and `}`. */
const bracketBit = 0x20;
const openBrace = 0x7b;
const closeBrace = 0x7d;

const forbiddenKey = "__proto__";
/** An escape such as `\u005f` is this much longer than the character it stands for. */
const escapeGrowth = 5;

/**
 * Finds the members of the JSON object at `start` in one pass, without parsing it: strings are skipped with a native
 * search, everything else is looked at once. The answer is right for valid JSON; for anything else it is only safe,
 * and the caller must have `JSON.parse` decide.
 *
 * @param text the body decoded as Latin-1, so that an offset in it is an offset in bytes
 * @param start where the value, or white space in front of it, begins
 * @throws EspalierError `nesting_too_deep`, or `invalid_value` for more than `limits.maxMembers` members
 */
export function scanObject(text: string, start: number, limits: ScanLimits): ObjectScan {
  const members: Member[] = [];
  let hasForbiddenKey = false;
  let depth = 0;
  let keyStart = -1;
  let keyEnd = 0;
  let valueStart = 0;
  let at = start;
  const finishMember = (valueEnd: number): void => {
    if (keyStart < 0) return;
    if (members.length === limits.maxMembers) throw tooManyMembers(limits.maxMembers);
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
      const suspect = mayBeForbidden(text, open + 1, at);
      if (depth !== 1 && !suspect) continue;
      const next = skipWhitespace(text, at + 1);
      if (text.charCodeAt(next) !== colon) continue;
      if (suspect && isForbidden(text, open + 1, at)) hasForbiddenKey = true;
      if (depth !== 1) continue;
      keyStart = open + 1;
      keyEnd = at;
      valueStart = skipWhitespace(text, next + 1);
      at = valueStart - 1;
    } else if ((code | bracketBit) === openBrace) {
      if (++depth > limits.maxDepth) throw tooDeep(limits.maxDepth);
    } else if ((code | bracketBit) === closeBrace) {
      if (--depth > 0) continue;
      finishMember(trimEnd(text, valueStart, at));
      break;
    } else if (code === comma && depth === 1) {
      finishMember(trimEnd(text, valueStart, at));
    }
  }
  finishMember(valueStart);
  return { members, hasForbiddenKey };
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

/** A test by length and first character, so that ordinary strings cost next to nothing. */
function mayBeForbidden(text: string, start: number, end: number): boolean {
  const excess = end - start - forbiddenKey.length;
  if (excess < 0 || excess > escapeGrowth * forbiddenKey.length || excess % escapeGrowth !== 0) return false;
  const first = text.charCodeAt(start);
  return first === underscore || first === backslash;
}

function isForbidden(text: string, start: number, end: number): boolean {
  const raw = text.slice(start, end);
  if (!raw.includes("\\")) return raw === forbiddenKey;
  try {
    return JSON.parse(`"${raw}"`) === forbiddenKey;
  } catch {
    return false;
  }
}

function tooDeep(maxDepth: number): EspalierError {
  return new EspalierError("nesting_too_deep", `The body nests deeper than ${maxDepth} levels.`);
}

function tooManyMembers(maxMembers: number): EspalierError {
  return new EspalierError("invalid_value", `The body has more than ${maxMembers} top-level keys.`);
}
