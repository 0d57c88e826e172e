import { intText } from "./numbers.ts";
import { lacking, maxTextChars, valueError } from "./template-error.ts";
import { capitalize, codePointCount, replace, split, splitLines, strip, titleCase } from "./text.ts";
import {
  bind,
  checkLength,
  dictGet,
  dictHas,
  intArgument,
  isDict,
  isInt,
  isTrue,
  iterate,
  type Keywords,
  PyTuple,
  stringArgument,
  type Value,
} from "./values.ts";
import { reprOf, textOf } from "./write.ts";

type Method = (text: string, args: readonly Value[], keywords: Keywords) => Value;

/** A method of Python's `str`; undefined when there is none of that name. */
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

/** `startswith` and `endswith`: one affix or a tuple of them. */
const affix = (test: (text: string, affix: string) => boolean): Method =>
  positional(1, 3, (text, [wanted, ...bounds]) => {
    if (bounds.length > 0) throw lacking("bounds of startswith() and endswith()");
    if (typeof wanted === "string") return test(text, wanted);
    if (!(wanted instanceof PyTuple)) throw valueError("the first arg must be str or a tuple of str");
    return Array.from(wanted).some((one) => test(text, stringArgument(one, "affix")));
  });

/** Methods that no chat template needs. */
const lackingMethods = [
  ...["casefold", "center", "count", "encode", "expandtabs", "find", "format_map", "index", "isalnum", "isalpha"],
  ...["isascii", "isdecimal", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper"],
  ...["ljust", "maketrans", "partition", "rfind", "rindex", "rjust", "rpartition", "swapcase", "translate", "zfill"],
].map((name): readonly [string, Method] => [
  name,
  () => {
    throw lacking(`the method str.${name}()`);
  },
]);

const methods: Readonly<Record<string, Method>> = {
  ...Object.fromEntries(lackingMethods),
  upper: plain((text) => text.toUpperCase()),
  lower: plain((text) => text.toLowerCase()),
  capitalize: plain(capitalize),
  title: plain(titleCase),
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
  join: positional(1, 1, (text, [items]) =>
    iterate(items)
      .map((item) => stringArgument(item, "sequence item"))
      .join(text),
  ),
  format: formatBraces,
  isdigit: plain((text) => /^[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+$/u.test(text)),
};

const percentField = /%(?:\(([^)]*)\))?([-0]*)(\d+)?(.|$)/gsu;

/**
 * `text % values`.
 *
 * @throws TemplateError when the values do not fit the fields, or for a field other than `%s`, `%r` and `%d`
 */
export function formatPercent(text: string, values: Value): string {
  const positional = values instanceof PyTuple ? values : [values];
  let next = 0;
  let isNamed = false;
  const result = text.replace(
    percentField,
    (whole: string, name: string | undefined, flags: string, width: string | undefined, type: string) => {
      if (whole === "%%") return "%";
      if (type === "") throw valueError("incomplete format");
      if (!Object.hasOwn(conversions, type)) throw lacking(`the format '${whole}'`);
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
      return pad(conversions[type]!(value), type, flags, width);
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

const conversions: Readonly<Record<string, (value: Value) => string>> = {
  s: textOf,
  r: reprOf,
  d(value) {
    if (!isInt(value)) throw lacking("format 'd' of a non-integer");
    return intText(value);
  },
};

function pad(text: string, type: string, flags: string, width = "0"): string {
  checkLength(Number(width), maxTextChars);
  const missing = Math.max(0, Number(width) - codePointCount(text));
  if (flags.includes("-")) return text + " ".repeat(missing);
  if (!flags.includes("0") || type !== "d") return " ".repeat(missing) + text;
  return text.replace(/^-?/, (sign) => sign + "0".repeat(missing));
}

const braceField = /\{\{|\}\}|\{([^{}!:]*)([!:][^{}]*)?\}|[{}]/g;

const braceForms = ["", "!s", ":", ":d"];

/**
 * `text.format(...)` with fields by position or name, whole or as an int (`{:d}`).
 *
 * @throws TemplateError for a field without a value or of another form
 */
function formatBraces(text: string, args: readonly Value[], keywords: Keywords): string {
  let next = 0;
  let numbering: "automatic" | "manual" | undefined;
  return text.replace(braceField, (whole, field?: string, form = "") => {
    if (whole === "{{" || whole === "}}") return whole.charAt(0);
    if (field === undefined) throw valueError("single brace in format string");
    if (/[.[]/.test(field) || !braceForms.includes(form)) throw lacking(`the format '${whole}'`);
    if (/^\d*$/.test(field)) {
      numbering ??= field === "" ? "automatic" : "manual";
      if ((field === "") !== (numbering === "automatic"))
        throw valueError("automatic and manual field numbering are mixed");
    }
    const isPosition = field === "" || /^\d+$/.test(field);
    const index = field === "" ? next++ : Number(field);
    if (isPosition ? index >= args.length : !keywords.has(field)) throw valueError(`no value for the field '${field}'`);
    const value = isPosition ? args[index] : keywords.get(field);
    return form === ":d" ? conversions.d!(value) : textOf(value);
  });
}
