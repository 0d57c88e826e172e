import { bind } from "./arguments.ts";
import { maxTextChars } from "./limits.ts";
import { formatBraces } from "./string-format.ts";
import { valueError } from "./template-error.ts";
import {
  capitalize,
  codePointCount,
  codePoints,
  replace,
  split,
  splitLines,
  strip,
  swapCase,
  titleCase,
} from "./text.ts";
import {
  checkLength,
  intArgument,
  isTrue,
  iterate,
  type Keywords,
  PyTuple,
  stringArgument,
  type Value,
} from "./values.ts";

type Method = (text: string, args: readonly Value[], keywords: Keywords) => Value;

/** The method of Python's `str`, or undefined when there is none that a chat template could need. */
export function stringMethod(name: string): Method | undefined {
  return Object.hasOwn(methods, name) ? methods[name] : undefined;
}

const plain =
  (apply: (text: string) => Value): Method =>
  (text) =>
    apply(text);

const optionalText = (value: Value, what: string): string | null =>
  value === undefined || value === null ? null : stringArgument(value, what);

const stripper =
  (sides: "left" | "right" | "both"): Method =>
  (text, [chars]) =>
    strip(text, optionalText(chars, "strip arg"), sides);

const splitter =
  (fromRight: boolean): Method =>
  (text, args, keywords) => {
    const [separator, maxSplits] = bind("split", ["sep", "maxsplit"], args, keywords);
    const by = optionalText(separator, "sep");
    if (by === "") throw valueError("empty separator");
    return split(text, by, maxSplits === undefined ? -1 : intArgument(maxSplits, "maxsplit"), fromRight);
  };

/** `startswith` and `endswith`: one affix or a tuple of them, in the part of the text that two indices name. */
const affix =
  (test: (text: string, affix: string) => boolean): Method =>
  (text, [wanted, start, stop]) => {
    const part = start === undefined ? text : partOf(text, start, stop);
    if (typeof wanted === "string") return test(part, wanted);
    if (!(wanted instanceof PyTuple)) throw valueError("the first arg must be str or a tuple of str");
    return Array.from(wanted).some((one) => test(part, stringArgument(one, "affix")));
  };

function partOf(text: string, start: Value, stop: Value): string {
  const points = codePoints(text);
  const from = start === null || start === undefined ? 0 : intArgument(start, "start");
  const to = stop === null || stop === undefined ? points.length : intArgument(stop, "end");
  const part = points.slice(from, to);
  return typeof part === "string" ? part : part.join("");
}

const finder =
  (fromRight: boolean, required: boolean): Method =>
  (text, [wanted, start, stop]) => {
    const sought = stringArgument(wanted, "sub");
    const part = start === undefined ? text : partOf(text, start, stop);
    const unit = fromRight ? part.lastIndexOf(sought) : part.indexOf(sought);
    if (unit < 0 && required) throw valueError("substring not found");
    if (unit < 0) return -1;
    const offset = start === undefined ? 0 : intArgument(start, "start");
    return codePointCount(part.slice(0, unit)) + (offset < 0 ? Math.max(0, codePointCount(text) + offset) : offset);
  };

const partitioner =
  (fromRight: boolean): Method =>
  (text, [separator]) => {
    const by = stringArgument(separator, "sep");
    if (by === "") throw valueError("empty separator");
    const at = fromRight ? text.lastIndexOf(by) : text.indexOf(by);
    if (at < 0) return PyTuple.ofItems(fromRight ? ["", "", text] : [text, "", ""]);
    return PyTuple.ofItems([text.slice(0, at), by, text.slice(at + by.length)]);
  };

const justifier =
  (side: "left" | "right" | "both"): Method =>
  (text, [width, fill = " "]) =>
    justify(text, intArgument(width, "width"), stringArgument(fill, "fillchar"), side);

/** `ljust`, `rjust` and `center`, which puts the odd blank on the left of an odd width. */
export function justify(text: string, width: number, fill: string, side: "left" | "right" | "both"): string {
  checkLength(width, maxTextChars);
  const missing = width - codePointCount(text);
  if (missing <= 0) return text;
  if (side === "left") return text + fill.repeat(missing);
  if (side === "right") return fill.repeat(missing) + text;
  const left = Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(left) + text + fill.repeat(missing - left);
}

/** Whether the text is not empty and all of it matches. */
const all =
  (pattern: RegExp): Method =>
  (text) =>
    text !== "" && pattern.test(text);

const hasCase = /\p{Cased}/u;

const methods: Readonly<Record<string, Method>> = {
  upper: plain((text) => text.toUpperCase()),
  lower: plain((text) => text.toLowerCase()),
  casefold: plain((text) => text.toLowerCase().replaceAll("ß", "ss")),
  capitalize: plain(capitalize),
  title: plain(titleCase),
  swapcase: plain(swapCase),
  strip: stripper("both"),
  lstrip: stripper("left"),
  rstrip: stripper("right"),
  split: splitter(false),
  rsplit: splitter(true),
  splitlines(text, args, keywords) {
    return splitLines(text, isTrue(bind("splitlines", ["keepends"], args, keywords)[0]));
  },
  startswith: affix((text, wanted) => text.startsWith(wanted)),
  endswith: affix((text, wanted) => text.endsWith(wanted)),
  removeprefix(text, [wanted]) {
    const prefix = stringArgument(wanted, "prefix");
    return text.startsWith(prefix) ? text.slice(prefix.length) : text;
  },
  removesuffix(text, [wanted]) {
    const suffix = stringArgument(wanted, "suffix");
    return suffix !== "" && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
  },
  replace(text, args, keywords) {
    const [old, replacement, count] = bind("replace", ["old", "new", "count"], args, keywords);
    const limit = count === undefined ? -1 : intArgument(count, "count");
    return replace(text, stringArgument(old, "old"), stringArgument(replacement, "new"), limit);
  },
  find: finder(false, false),
  rfind: finder(true, false),
  index: finder(false, true),
  rindex: finder(true, true),
  count(text, [wanted]) {
    const sought = stringArgument(wanted, "sub");
    return sought === "" ? codePointCount(text) + 1 : text.split(sought).length - 1;
  },
  partition: partitioner(false),
  rpartition: partitioner(true),
  join(text, [items]) {
    return iterate(items)
      .map((item) => stringArgument(item, "sequence item"))
      .join(text);
  },
  ljust: justifier("left"),
  rjust: justifier("right"),
  center: justifier("both"),
  zfill(text, [width]) {
    const digits = /^[+-]/.test(text) ? text.slice(1) : text;
    const signed = text.slice(0, text.length - digits.length);
    return signed + justify(digits, intArgument(width, "width") - signed.length, "0", "right");
  },
  format: (text, args, keywords) => formatBraces(text, args, keywords),
  isdigit: all(/^[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+$/u),
  isdecimal: all(/^\p{Nd}+$/u),
  isnumeric: all(/^\p{N}+$/u),
  isalpha: all(/^\p{L}+$/u),
  isalnum: all(/^[\p{L}\p{N}]+$/u),
  isspace: all(/^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$/),
  isascii: plain((text) => /^[\x00-\x7f]*$/.test(text)),
  isupper: plain((text) => hasCase.test(text) && text === text.toUpperCase()),
  islower: plain((text) => hasCase.test(text) && text === text.toLowerCase()),
};
