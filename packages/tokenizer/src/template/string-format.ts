import { maxTextChars } from "./limits.ts";
import { floatText, intText, roundHalfEven } from "./numbers.ts";
import { valueError } from "./template-error.ts";
import { codePointCount, codePoints } from "./text.ts";
import {
  checkLength,
  dictGet,
  dictHas,
  isDict,
  isInt,
  isNumeric,
  type Keywords,
  PyTuple,
  stringArgument,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";
import { asciiOf, reprOf, textOf } from "./write.ts";

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

/** Whether Python takes the value for a mapping, which may have more than the text asks for. */
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

/** The fewest digits of an int, which the precision names. */
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

/** `toFixed`, which rounds a tie up, made to round it to the even neighbour. */
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

/** `toExponential`, which rounds a tie up, made to round it to the even neighbour. */
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

/** Without zeros at the end of the fraction. */
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
 * @throws TemplateError for a field without a value, or one that needs more of Python than that
 */
export function formatBraces(text: string, args: readonly Value[], keywords: Keywords): string {
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

/** Refuses a code that is not for the kind of number, as Python does. */
function checkCode(value: Value, type: string, precision: string | undefined, comma: string): void {
  const isForInts = "bcdoxX".includes(type) && type !== "";
  const isWhole = isForInts || (isInt(value) && (type === "" || type === "n"));
  if (type === "s" || (isForInts && !isInt(value))) {
    throw valueError(`Unknown format code '${type}' for object of type '${typeName(value)}'`);
  }
  if (isWhole && precision !== undefined) throw valueError("Precision not allowed in integer format specifier");
  if (comma !== "" && type !== "" && "bcnoxX".includes(type)) throw valueError(`Cannot specify ',' with '${type}'.`);
}

/** A float with a precision and no code: as `g`, but never without a point or an exponent. */
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
