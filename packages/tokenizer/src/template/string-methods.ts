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
  (text, args, keywords) => {
    if (args.length + keywords.size > 0) throw valueError("the method takes no arguments");
    return apply(text);
  };

/** A method with these many arguments, given by position only. */
const positional =
  (least: number, most: number, method: Method): Method =>
  (text, args, keywords) => {
    if (keywords.size > 0) throw valueError("the method takes no keyword arguments");
    if (args.length < least || args.length > most) {
      throw valueError(`the method takes ${least} to ${most} arguments (${args.length} given)`);
    }
    return method(text, args, keywords);
  };

const optionalText = (value: Value, what: string): string | null =>
  value === undefined || value === null ? null : stringArgument(value, what);

const stripper = (sides: "left" | "right" | "both"): Method =>
  positional(0, 1, (text, [chars]) => strip(text, optionalText(chars, "strip arg"), sides));

const splitter =
  (fromRight: boolean): Method =>
  (text, args, keywords) => {
    const [separator, maxSplits] = bind("split", ["sep", "maxsplit"], args, keywords);
    const by = optionalText(separator, "sep");
    if (by === "") throw valueError("empty separator");
    return split(text, by, maxSplits === undefined ? -1 : intArgument(maxSplits, "maxsplit"), fromRight);
  };

/** `startswith` and `endswith`: one affix or a tuple of them, in the part of the text that two indices name. */
const affix = (test: (text: string, affix: string) => boolean): Method =>
  positional(1, 3, (text, [wanted, start, stop]) => {
    const part = partOf(text, start, stop)?.text;
    const fits = (one: string): boolean => part !== undefined && test(part, one);
    if (typeof wanted === "string") return fits(wanted);
    if (!(wanted instanceof PyTuple)) throw valueError("the first arg must be str or a tuple of str");
    return Array.from(wanted).some((one) => fits(stringArgument(one, "affix")));
  });

/**
 * The part of a text between two indices and how many code points stand before it; undefined when it starts past the
 * end, where Python finds nothing, not even the empty text.
 */
function partOf(
  text: string,
  start: Value,
  stop: Value,
): { readonly text: string; readonly offset: number } | undefined {
  const from = start === null || start === undefined ? 0 : intArgument(start, "start");
  const to = stop === null || stop === undefined ? Number.POSITIVE_INFINITY : intArgument(stop, "end");
  if (from === 0 && to === Number.POSITIVE_INFINITY) return { text, offset: 0 };
  const points = codePoints(text);
  const offset = from < 0 ? Math.max(0, points.length + from) : from;
  if (offset > points.length || (to < 0 ? points.length + to : to) < offset) return undefined;
  const part = points.slice(offset, to);
  return { text: typeof part === "string" ? part : part.join(""), offset };
}

const finder = (fromRight: boolean, required: boolean): Method =>
  positional(1, 3, (text, [wanted, start, stop]) => {
    const sought = stringArgument(wanted, "sub");
    const part = partOf(text, start, stop);
    const unit = part ? (fromRight ? part.text.lastIndexOf(sought) : part.text.indexOf(sought)) : -1;
    if (unit < 0 && required) throw valueError("substring not found");
    return part && unit >= 0 ? codePointCount(part.text.slice(0, unit)) + part.offset : -1;
  });

const partitioner = (fromRight: boolean): Method =>
  positional(1, 1, (text, [separator]) => {
    const by = stringArgument(separator, "sep");
    if (by === "") throw valueError("empty separator");
    const at = fromRight ? text.lastIndexOf(by) : text.indexOf(by);
    if (at < 0) return PyTuple.ofItems(fromRight ? ["", "", text] : [text, "", ""]);
    return PyTuple.ofItems([text.slice(0, at), by, text.slice(at + by.length)]);
  });

const justifier = (side: "left" | "right" | "both"): Method =>
  positional(1, 2, (text, [width, given]) => {
    const fill = given === undefined ? " " : stringArgument(given, "fillchar");
    if (codePointCount(fill) !== 1) throw valueError("the fill character must be exactly one character long");
    return justify(text, intArgument(width, "width"), fill, side);
  });

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
const all = (pattern: RegExp): Method => plain((text) => text !== "" && pattern.test(text));

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
  removeprefix: positional(1, 1, (text, [wanted]) => {
    const prefix = stringArgument(wanted, "prefix");
    return text.startsWith(prefix) ? text.slice(prefix.length) : text;
  }),
  removesuffix: positional(1, 1, (text, [wanted]) => {
    const suffix = stringArgument(wanted, "suffix");
    return suffix !== "" && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
  }),
  replace(text, args, keywords) {
    const [old, replacement, count] = bind("replace", ["old", "new", "count"], args, keywords);
    const limit = count === undefined ? -1 : intArgument(count, "count");
    return replace(text, stringArgument(old, "old"), stringArgument(replacement, "new"), limit);
  },
  find: finder(false, false),
  rfind: finder(true, false),
  index: finder(false, true),
  rindex: finder(true, true),
  count: positional(1, 3, (text, [wanted, start, stop]) => {
    const sought = stringArgument(wanted, "sub");
    const part = partOf(text, start, stop)?.text;
    if (part === undefined) return 0;
    return sought === "" ? codePointCount(part) + 1 : part.split(sought).length - 1;
  }),
  partition: partitioner(false),
  rpartition: partitioner(true),
  join: positional(1, 1, (text, [items]) =>
    iterate(items)
      .map((item) => stringArgument(item, "sequence item"))
      .join(text),
  ),
  ljust: justifier("left"),
  rjust: justifier("right"),
  center: justifier("both"),
  zfill: positional(1, 1, (text, [width]) => {
    const digits = /^[+-]/.test(text) ? text.slice(1) : text;
    const signed = text.slice(0, text.length - digits.length);
    return signed + justify(digits, intArgument(width, "width") - signed.length, "0", "right");
  }),
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
