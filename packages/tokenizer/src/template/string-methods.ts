import { floatText, intText, roundHalfEven } from "./numbers.ts";
import { maxTextChars, valueError } from "./template-error.ts";
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
  bind,
  checkLength,
  dictGet,
  dictHas,
  intArgument,
  isDict,
  isInt,
  isNumeric,
  isTrue,
  iterate,
  type Keywords,
  PyTuple,
  stringArgument,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";
import { asciiOf, reprOf, textOf } from "./write.ts";

type Method = (text: string, args: readonly Value[], keywords: Keywords) => Value;

/** A method of Python's `str`; undefined for one that no chat template needs. */
export function stringMethod(name: string): Method | undefined {
  return Object.hasOwn(methods, name) ? methods[name] : undefined;
}

const plain =
  (apply: (text: string) => Value): Method =>
  (text, args, keywords) => {
    if (args.length + keywords.size > 0) throw valueError("the method takes no arguments");
    return apply(text);
  };

/** A method with the given parameters, passed only by position. */
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

/** `startswith` and `endswith`: one affix or a tuple of them, within the part of the text between two indices. */
const affix = (test: (text: string, affix: string) => boolean): Method =>
  positional(1, 3, (text, [wanted, start, stop]) => {
    const part = partOf(text, start, stop)?.text;
    const fits = (one: string): boolean => part !== undefined && test(part, one);
    if (typeof wanted === "string") return fits(wanted);
    if (!(wanted instanceof PyTuple)) throw valueError("the first arg must be str or a tuple of str");
    return Array.from(wanted).some((one) => fits(stringArgument(one, "affix")));
  });

/**
 * The part of a text between two indices, and how many code points precede it. Undefined when it starts past the end,
 * where Python finds nothing, not even the empty text.
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

/** `ljust`, `rjust` and `center`, which puts an odd blank on the left of an odd width. */
export function justify(text: string, width: number, fill: string, side: "left" | "right" | "both"): string {
  checkLength(width, maxTextChars);
  const missing = width - codePointCount(text);
  if (missing <= 0) return text;
  if (side === "left") return text + fill.repeat(missing);
  if (side === "right") return fill.repeat(missing) + text;
  const left = Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(left) + text + fill.repeat(missing - left);
}

/** Whether the text is not empty and matches as a whole. */
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

const percentField = /%(?:\(([^)]*)\))?([-+ 0#]*)(\*|\d+)?(?:\.(\d+))?[hlL]?(.|$)/gsu;

/**
 * `text % values`.
 *
 * @throws TemplateError when the values do not fit the fields
 */
export function formatPercent(text: string, values: Value): string {
  const positional = values instanceof PyTuple ? values : [values];
  let next = 0;
  let isNamed = false;
  const result = text.replace(
    percentField,
    (whole: string, name?: string, flags = "", width?: string, precision?: string, type = "") => {
      if (whole === "%%") return "%";
      if (type === "") throw valueError("incomplete format");
      if (width === "*") throw valueError("a width of * is not supported");
      let value: Value;
      if (name === undefined) {
        if (next >= positional.length) throw valueError("not enough arguments for format string");
        value = positional[next++];
      } else {
        if (!isDict(values)) throw valueError("format requires a mapping");
        if (!dictHas(values, name)) throw valueError(`the mapping has no key '${name}'`);
        isNamed = true;
        value = dictGet(values, name);
      }
      return pad(convert(value, type, flags, precision), flags, width, type);
    },
  );
  if (!isNamed && next < positional.length && !hasItems(values)) {
    throw valueError("not all arguments converted during string formatting");
  }
  return result;
}

/** Whether Python takes the value for a mapping, which may have more items than the text uses. */
function hasItems(value: Value): boolean {
  return value === undefined || isDict(value) || (Array.isArray(value) && !(value instanceof PyTuple));
}

function convert(value: Value, type: string, flags: string, precision: string | undefined): string {
  switch (type) {
    case "s":
    case "r":
    case "a": {
      const text = textBy(type, value);
      return precision === undefined ? text : firstPoints(text, Number(precision));
    }
    case "c":
      return character(value);
    case "d":
    case "i":
    case "u":
      return signed(withDigits(integerText(value, type), precision), flags);
    case "x":
    case "X":
    case "o":
      return signed(withDigits(radix(value, type, flags), precision), flags);
    default:
      return signed(floatField(numberOf(value, type), type, precision), flags);
  }
}

/** The text of a value by its conversion: `s` for `str`, `r` for `repr`, `a` for `ascii`. */
function textBy(conversion: string, value: Value): string {
  if (conversion === "s") return textOf(value);
  return conversion === "r" ? reprOf(value) : asciiOf(value);
}

function firstPoints(text: string, count: number): string {
  const points = codePoints(text).slice(0, count);
  return typeof points === "string" ? points : points.join("");
}

const maxCodePoint = 0x10ffff;

function character(value: Value): string {
  if (typeof value === "string" && codePointCount(value) === 1) return value;
  if (!isInt(value)) throw valueError("%c requires int or char");
  const point = Number(value);
  if (point < 0 || point > maxCodePoint) throw valueError("%c arg not in range(0x110000)");
  return String.fromCodePoint(point);
}

function integerText(value: Value, type: string): string {
  if (isInt(value)) return intText(BigInt(value));
  const number = numberOf(value, type);
  if (!Number.isFinite(number)) throw valueError("cannot convert float infinity or NaN to integer");
  return intText(BigInt(Math.trunc(number)));
}

/** The minimum number of digits of an int, given by the precision. */
function withDigits(text: string, precision = "0"): string {
  checkLength(Number(precision), maxTextChars);
  return text.replace(/[0-9a-f]+$/i, (digits) => digits.padStart(Number(precision), "0"));
}

function numberOf(value: Value, type: string): number {
  if (isNumeric(value)) return toDouble(value);
  throw valueError(`%${type} format: a real number is required, not ${typeName(value)}`);
}

function radix(value: Value, type: string, flags: string): string {
  if (!isInt(value)) throw valueError(`%${type} format: an integer is required, not ${typeName(value)}`);
  const digits = BigInt(value).toString(type === "o" ? 8 : 16);
  const prefix = flags.includes("#") ? (type === "o" ? "0o" : "0x") : "";
  const text = digits.startsWith("-") ? `-${prefix}${digits.slice(1)}` : prefix + digits;
  return type === "X" ? text.toUpperCase() : text;
}

function floatField(value: number, type: string, precision = "6"): string {
  const digits = Math.min(Number(precision), 100);
  if (!Number.isFinite(value)) return floatText(value);
  switch (type) {
    case "f":
    case "F":
      return fixed(value, digits);
    case "e":
    case "E":
      return cased(exponential(value, digits), type);
    case "g":
    case "G":
      return cased(general(value, digits || 1), type);
    default:
      throw valueError(`unsupported format character '${type}'`);
  }
}

/** `toFixed`, but rounding a tie to the even neighbour instead of up. */
function fixed(value: number, digits: number): string {
  if (Math.abs(value) >= 1e21) return `${BigInt(value)}${digits > 0 ? `.${"0".repeat(digits)}` : ""}`;
  const text = roundHalfEven(Math.abs(value), digits).toFixed(digits);
  return value < 0 || Object.is(value, -0) ? `-${text}` : text;
}

const cased = (text: string, type: string): string => (type === type.toUpperCase() ? text.toUpperCase() : text);

function exponential(value: number, digits: number): string {
  const text = toEvenExponential(Math.abs(value), digits).replace(/e([+-])(\d)$/, "e$10$2");
  return value < 0 || Object.is(value, -0) ? `-${text}` : text;
}

/** `toExponential`, but rounding a tie to the even neighbour instead of up. */
function toEvenExponential(value: number, digits: number): string {
  const [mantissa = "", power = ""] = value.toExponential(100).split("e");
  const kept = digits === 0 ? mantissa.charAt(0) : mantissa.slice(0, digits + 2);
  const isTie = /^\.?50*$/.test(mantissa.slice(kept.length));
  return isTie && /[02468]$/.test(kept) ? `${kept}e${power}` : value.toExponential(digits);
}

function general(value: number, digits: number): string {
  const power = value === 0 ? 0 : Number(value.toExponential(digits - 1).split("e")[1]);
  const text =
    power < -4 || power >= digits ? exponential(value, digits - 1) : fixed(value, Math.max(0, digits - 1 - power));
  return trimmed(text);
}

/** Removes zeros at the end of the fraction. */
const trimmed = (text: string): string => text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");

function signed(text: string, flags: string): string {
  if (text.startsWith("-")) return text;
  return flags.includes("+") ? `+${text}` : flags.includes(" ") ? ` ${text}` : text;
}

function pad(text: string, flags: string, width: string | undefined, type: string): string {
  const target = Number(width ?? 0);
  checkLength(target, maxTextChars);
  const missing = target - codePointCount(text);
  if (missing <= 0) return text;
  if (flags.includes("-")) return text + " ".repeat(missing);
  if (!flags.includes("0") || "srac".includes(type)) return " ".repeat(missing) + text;
  const sign = /^[+\- ]?/.exec(text)![0];
  return sign + "0".repeat(missing) + text.slice(sign.length);
}

const braceField = /\{\{|\}\}|\{([^{}!:]*)(?:!([rsa]))?(?::([^{}]*))?\}|[{}]/g;

/**
 * `text.format(...)` with fields by position or name and the common format specifications.
 *
 * @throws TemplateError for a field without a value or beyond that subset
 */
function formatBraces(text: string, args: readonly Value[], keywords: Keywords): string {
  let next = 0;
  let numbering: "automatic" | "manual" | undefined;
  return text.replace(braceField, (whole, field?: string, conversion?: string, specification = "") => {
    if (whole === "{{" || whole === "}}") return whole.charAt(0);
    if (field === undefined) throw valueError("single brace in format string");
    if (/[.[]/.test(field)) throw valueError("attributes in format strings are not supported");
    if (/^\d*$/.test(field)) {
      numbering ??= field === "" ? "automatic" : "manual";
      if ((field === "") !== (numbering === "automatic")) throw valueError("fields are numbered, or none is");
    }
    const isPosition = field === "" || /^\d+$/.test(field);
    const index = field === "" ? next++ : Number(field);
    if (isPosition ? index >= args.length : !keywords.has(field)) throw valueError(`no value for the field '${field}'`);
    const value = isPosition ? args[index] : keywords.get(field);
    return formatValue(conversion === undefined ? value : textBy(conversion, value), specification);
  });
}

const specificationSyntax = /^(?:(.)?([<>^]))?([-+ ]?)(0?)(\d*)(,?)(?:\.(\d+))?([bcdeEfFgGnosxX%]?)$/su;

/** `format(value, specification)`. */
function formatValue(value: Value, specification: string): string {
  if (specification === "") return textOf(value);
  const parts = specificationSyntax.exec(specification);
  if (!parts) throw valueError(`the format '${specification}' is not supported`);
  const [, fill, align, signs = "", zero = "", width = "", comma = "", precision, type = ""] = parts;
  const numeric = isNumeric(value);
  if (!numeric && signs + comma !== "") throw valueError(`the format '${specification}' is for numbers`);
  if (zero + comma === "0," && width !== "") throw valueError("zeros with commas between them are not supported");
  const number = typeof value === "boolean" ? Number(value) : value;
  const body = numeric ? formatNumber(number, type, signs, precision, comma) : formatText(value, type, precision);
  const missing = Number(width || 0) - codePointCount(body);
  checkLength(missing, maxTextChars);
  if (missing <= 0) return body;
  const blank = fill ?? (zero === "" ? " " : "0");
  if (align === undefined && zero !== "" && numeric) {
    const sign = /^[+\- ]?/.exec(body)![0];
    return sign + "0".repeat(missing) + body.slice(sign.length);
  }
  const side = align ?? (numeric ? ">" : "<");
  const left = side === "<" ? 0 : side === ">" ? missing : Math.floor(missing / 2);
  return blank.repeat(left) + body + blank.repeat(missing - left);
}

function formatText(value: Value, type: string, precision: string | undefined): string {
  if (type !== "" && type !== "s") throw valueError(`unknown format code '${type}' for ${typeName(value)}`);
  return convert(stringArgument(value, "value"), "s", "", precision);
}

/** Refuses a code that does not fit the kind of number, as Python does. */
function checkCode(value: Value, type: string, precision: string | undefined, comma: string): void {
  const isForInts = "bcdoxX".includes(type) && type !== "";
  const isWhole = isForInts || (isInt(value) && (type === "" || type === "n"));
  if (type === "s" || (isForInts && !isInt(value))) {
    throw valueError(`Unknown format code '${type}' for object of type '${typeName(value)}'`);
  }
  if (isWhole && precision !== undefined) throw valueError("Precision not allowed in integer format specifier");
  if (comma !== "" && type !== "" && "bcnoxX".includes(type)) throw valueError(`Cannot specify ',' with '${type}'.`);
}

/** A float with a precision and no code: like `g`, but always with a point or an exponent. */
function shortest(value: number, precision: number): string {
  if (!Number.isFinite(value)) return floatText(value);
  const digits = Math.min(precision || 1, 100);
  const power = value === 0 ? 0 : Number(value.toExponential(digits - 1).split("e")[1]);
  if (power === digits - 1) return trimmed(exponential(value, digits - 1));
  const text = general(value, digits);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function formatNumber(value: Value, type: string, signs: string, precision: string | undefined, comma: string): string {
  checkCode(value, type, precision, comma);
  let text: string;
  if (type === "%") text = `${convert(toDouble(value as number) * 100, "f", signs, precision)}%`;
  else if (type === "" || (type === "n" && isInt(value)))
    text =
      precision === undefined
        ? signed(textOf(value), signs)
        : signed(shortest(toDouble(value as number), Number(precision)), signs);
  else if (type === "b") text = signed(BigInt(value as number).toString(2), signs);
  else text = convert(value, type === "n" ? "g" : type, signs, precision);
  return comma === "" ? text : text.replace(/\d(?=(?:\d{3})+(?!\d))(?<!\.\d*)/g, "$&,");
}
