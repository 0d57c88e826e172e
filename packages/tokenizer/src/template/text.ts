/** Python's `str` methods where they differ from JavaScript's: code points instead of UTF-16 units, other white space. */

const surrogate = /[\ud800-\udfff]/;

/** Code units of Python's white space above U+0020 (`str.isspace`). */
const wideSpace = /[\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

function isSpace(code: number): boolean {
  if (code === 0x20 || (code >= 0x09 && code <= 0x0d)) return true;
  if (code > 0x20 && code < 0x85) return false;
  return wideSpace.test(String.fromCharCode(code));
}

/** The number of code points. */
export function codePointCount(text: string): number {
  if (!surrogate.test(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** The code points as strings, or the text itself if its units are its code points. */
export function codePoints(text: string): string | string[] {
  return surrogate.test(text) ? Array.from(text) : text;
}

/** `lstrip`, `rstrip` or both, of white space or of the given characters. */
export function strip(text: string, chars: string | null | undefined, sides: "left" | "right" | "both"): string {
  const stripped =
    chars === null || chars === undefined
      ? (index: number) => isSpace(text.charCodeAt(index))
      : strippedBy(text, new Set(Array.from(chars)));
  let start = 0;
  let end = text.length;
  if (sides !== "right") while (start < end && stripped(start)) start++;
  if (sides !== "left") while (end > start && stripped(end - 1)) end--;
  return start === 0 && end === text.length ? text : text.slice(start, end);
}

function strippedBy(text: string, chars: ReadonlySet<string>): (index: number) => boolean {
  return (index) => {
    if (chars.has(text.charAt(index))) return true;
    const unit = text.charCodeAt(index);
    if (unit < 0xd800 || unit > 0xdfff) return false;
    const start = unit >= 0xdc00 ? index - 1 : index;
    return chars.has(text.slice(start, start + 2));
  };
}

/** `split(sep, maxsplit)` from the left or `rsplit` from the right; no separator splits at runs of white space. */
export function split(text: string, separator: string | null, maxSplits: number, fromRight = false): string[] {
  if (separator === null) return splitAtSpace(text, maxSplits, fromRight);
  if (fromRight) return splitFromRight(text, separator, maxSplits);
  const parts = text.split(separator);
  if (maxSplits < 0 || parts.length <= maxSplits + 1) return parts;
  return [...parts.slice(0, maxSplits), parts.slice(maxSplits).join(separator)];
}

/** From the right, a separator that overlaps itself is found in other positions than from the left. */
function splitFromRight(text: string, separator: string, maxSplits: number): string[] {
  const parts: string[] = [];
  let end = text.length;
  while (maxSplits < 0 || parts.length < maxSplits) {
    const at = end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length);
    if (at < 0) break;
    parts.push(text.slice(at + separator.length, end));
    end = at;
  }
  parts.push(text.slice(0, end));
  return parts.reverse();
}

function splitAtSpace(text: string, maxSplits: number, fromRight: boolean): string[] {
  const words: [start: number, end: number][] = [];
  let start = -1;
  for (let index = 0; index <= text.length; index++) {
    const space = index === text.length || isSpace(text.charCodeAt(index));
    if (space && start >= 0) {
      words.push([start, index]);
      start = -1;
    } else if (!space && start < 0) {
      start = index;
    }
  }
  const all = words.map(([from, to]) => text.slice(from, to));
  if (maxSplits < 0 || words.length <= maxSplits) return all;
  if (fromRight) {
    const cut = words.length - maxSplits;
    return [text.slice(0, words[cut - 1]![1]), ...all.slice(cut)];
  }
  return [...all.slice(0, maxSplits), text.slice(words[maxSplits]![0])];
}

const lineBreak = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

/** `splitlines(keepends)`. */
export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let start = 0;
  for (const { index, 0: end } of text.matchAll(lineBreak)) {
    lines.push(text.slice(start, keepEnds ? index + end.length : index));
    start = index + end.length;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

/** `replace(old, new, count)`; a negative count replaces all. */
export function replace(text: string, old: string, replacement: string, count: number): string {
  if (count < 0)
    return old === ""
      ? insertBetween(text, replacement, Number.POSITIVE_INFINITY)
      : text.replaceAll(old, () => replacement);
  if (old === "") return insertBetween(text, replacement, count);
  const parts = text.split(old);
  if (parts.length <= count + 1) return parts.join(replacement);
  return [...parts.slice(0, count), parts.slice(count).join(old)].join(replacement);
}

function insertBetween(text: string, insertion: string, count: number): string {
  const points = Array.from(text);
  let result = "";
  for (let index = 0; index <= points.length; index++) {
    if (index < count) result += insertion;
    result += points[index] ?? "";
  }
  return result;
}

/** `str.capitalize`: the first letter up, the rest down. */
export function capitalize(text: string): string {
  const [first = ""] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}

/** `str.title`: every letter after a non-letter up, all others down. */
export function titleCase(text: string): string {
  return text.replace(/\p{Cased}+/gu, (word) => capitalize(word));
}

/** `markupsafe.escape` */
export function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll(">", "&gt;")
    .replaceAll("<", "&lt;")
    .replaceAll("'", "&#39;")
    .replaceAll('"', "&#34;");
}

/** -1, 0 or 1 by code points, as Python orders strings. */
export function compareText(a: string, b: string): number {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const left = a.charCodeAt(index);
    const right = b.charCodeAt(index);
    if (left === right) continue;
    // Astral characters sort above all others, though their surrogates are below U+E000.
    const isLeftAstral = left >= 0xd800 && left <= 0xdfff;
    const isRightAstral = right >= 0xd800 && right <= 0xdfff;
    if (isLeftAstral !== isRightAstral) return isLeftAstral ? 1 : -1;
    return left < right ? -1 : 1;
  }
  return a.length < b.length ? -1 : 1;
}
