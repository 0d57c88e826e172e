import { getItem, lengthOf } from "./access.ts";
import { defaultJsonStyle, writeJson } from "./json.ts";
import { smallest } from "./numbers.ts";
import { formatPercent } from "./string-methods.ts";
import { lacking, maxTextChars, valueError } from "./template-error.ts";
import { testNamed } from "./tests.ts";
import { capitalize, escapeHtml, replace, splitLines, strip } from "./text.ts";
import {
  bind,
  checkHashable,
  checkLength,
  compareValues,
  dictEntries,
  dictKey,
  floatValue,
  intArgument,
  isDict,
  isNumeric,
  isTrue,
  iterate,
  type Keywords,
  LazySequence,
  Markup,
  noKeywords,
  PyFloat,
  PyTuple,
  stringArgument,
  toDouble,
  typeName,
  type Value,
} from "./values.ts";
import { reprOf, textOf } from "./write.ts";

/** A filter: the value before the bar, then its arguments. */
export type Filter = (value: Value, args: readonly Value[], keywords: Keywords) => Value;

/** The filter of that name. One that is lacking fails when it is used: a branch that is never taken may name it. */
export function filterNamed(name: string): Filter {
  for (const table of [textFilters, sequenceFilters, numberFilters, higherFilters]) {
    if (Object.hasOwn(table, name)) return table[name]!;
  }
  return () => {
    throw lacking(`the filter '${name}'`);
  };
}

/** A filter whose arguments may be given by position or by name; absent ones are undefined. */
function filterOf(
  name: string,
  parameters: readonly string[],
  apply: (value: Value, args: readonly Value[]) => Value,
): Filter {
  return (value, args, keywords) => apply(value, bind(name, parameters, args, keywords));
}

/**
 * Reads an attribute path such as `function.name` or `0` from an item, like the `attribute` of filters. None selects
 * the item itself.
 */
function attributeGetter(attribute: Value, otherwise?: Value): (item: Value) => Value {
  if (attribute === undefined || attribute === null) return (item) => item;
  const parts = typeof attribute === "string" ? attribute.split(".").map(pathPart) : [attribute];
  return (item) => {
    let value = item;
    for (const part of parts) {
      value = getItem(value, part);
      if (value === undefined && otherwise !== null) value = otherwise;
    }
    return value;
  };
}

const pathPart = (part: string): string | number => (/^\d+$/.test(part) ? Number(part) : part);

/** Strings in lower case, for filters that ignore case. */
const ignoreCase = (value: Value): Value => (typeof value === "string" ? value.toLowerCase() : value);

function map(value: Value, args: readonly Value[], keywords: Keywords): Value {
  // Without items, the filter's arguments are not checked either.
  if (!isTrue(value)) return new LazySequence([]);
  const apply = args.length === 0 && keywords.has("attribute") ? attributeOf(keywords) : namedFilter(args, keywords);
  return new LazySequence(iterate(value).map(apply));
}

function attributeOf(keywords: Keywords): (item: Value) => Value {
  for (const keyword of keywords.keys()) {
    if (keyword !== "attribute" && keyword !== "default") throw valueError(`Unexpected keyword argument '${keyword}'`);
  }
  return attributeGetter(keywords.get("attribute"), keywords.get("default"));
}

function namedFilter([name, ...rest]: readonly Value[], keywords: Keywords): (item: Value) => Value {
  if (name === undefined) throw valueError("map requires a filter argument");
  const filter = filterNamed(stringArgument(name, "the filter's name"));
  return (item) => filter(item, rest, keywords);
}

/** `select`, `reject`, `selectattr` and `rejectattr`: by a test, or by truth when none is named. */
const selector =
  (wanted: boolean, byAttribute: boolean): Filter =>
  (value, args) => {
    if (!isTrue(value)) return new LazySequence([]);
    if (byAttribute && args.length === 0) throw valueError("Missing parameter for attribute name");
    const read = byAttribute ? attributeGetter(args[0]) : (item: Value) => item;
    const [name, ...rest] = byAttribute ? args.slice(1) : args;
    const test = name === undefined ? isTrue : namedTest(name, rest);
    return new LazySequence(iterate(value).filter((item) => test(read(item)) === wanted));
  };

function namedTest(name: Value, args: readonly Value[]): (value: Value) => boolean {
  const test = testNamed(stringArgument(name, "the test's name"));
  return (value) => test(value, args, noKeywords);
}

const higherFilters: Readonly<Record<string, Filter>> = {
  map,
  select: selector(true, false),
  reject: selector(false, false),
  selectattr: selector(true, true),
  rejectattr: selector(false, true),
};

const floatSyntax = /^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?$/;
const specialFloats: Readonly<Record<string, number>> = {
  inf: Number.POSITIVE_INFINITY,
  infinity: Number.POSITIVE_INFINITY,
  nan: Number.NaN,
};

/** `float(text)`, or undefined when Python would not read it. */
function parseFloatText(text: string): number | undefined {
  const trimmed = strip(text, null, "both");
  if (floatSyntax.test(trimmed)) return Number(trimmed.replaceAll("_", ""));
  const word = trimmed.toLowerCase().replace(/^[+-]/, "");
  if (!Object.hasOwn(specialFloats, word)) return undefined;
  return trimmed.startsWith("-") ? -specialFloats[word]! : specialFloats[word];
}

/** `int(text, base)`, or undefined when Python would not read it. */
function parseIntText(text: string, base: number): number | bigint | undefined {
  const trimmed = strip(text, null, "both")
    .toLowerCase()
    .replaceAll(/(?<=[0-9a-z])_(?=[0-9a-z])/g, "");
  const negative = trimmed.startsWith("-");
  let digits = trimmed.replace(/^[+-]/, "");
  for (const [prefix, radix] of [
    ["0x", 16],
    ["0o", 8],
    ["0b", 2],
  ] as const) {
    if (base === radix && digits.startsWith(prefix)) digits = digits.slice(2);
  }
  if (digits === "") return undefined;
  let value = 0n;
  for (const digit of digits) {
    const digitValue = Number.parseInt(digit, 36);
    if (Number.isNaN(digitValue) || digitValue >= base) return undefined;
    value = value * BigInt(base) + BigInt(digitValue);
  }
  return smallest(negative ? -value : value);
}

/** Digits of the longest text that `int` reads; Python's own bound. */
const maxIntDigits = 4300;

const toInt = filterOf("int", ["default", "base"], (value, [otherwise = 0, base = 10]) => {
  if (typeof value === "string") {
    const whole = value.length > maxIntDigits ? undefined : parseIntText(value, intArgument(base, "base"));
    if (whole !== undefined) return whole;
    const float = parseFloatText(value);
    return float === undefined || !Number.isFinite(float) ? otherwise : truncated(float);
  }
  if (value === undefined) throw valueError("int of an undefined value");
  if (!isNumeric(value)) return otherwise;
  if (typeof value === "bigint") return value;
  const double = toDouble(value);
  return Number.isFinite(double) ? truncated(double) : otherwise;
});

const truncated = (value: number): number | bigint => smallest(BigInt(Math.trunc(value)));

const toFloat = filterOf("float", ["default"], (value, [otherwise = new PyFloat(0)]) => {
  if (value === undefined) throw valueError("float of an undefined value");
  if (isNumeric(value)) return floatValue(toDouble(value));
  const float = typeof value === "string" ? parseFloatText(value) : undefined;
  return float === undefined ? otherwise : floatValue(float);
});

/** Filters over numbers, and `default`. */
const numberFilters: Readonly<Record<string, Filter>> = {
  int: toInt,
  float: toFloat,
  default: filterOf("default", ["default_value", "boolean"], orDefault),
  d: filterOf("default", ["default_value", "boolean"], orDefault),
};

function orDefault(value: Value, [otherwise = "", boolean = false]: readonly Value[]): Value {
  return value === undefined || (isTrue(boolean) && !isTrue(value)) ? otherwise : value;
}

/** A stable sort by keys, like Python's `sorted`: a reversed one also keeps the order of equals. */
function sortBy(items: readonly Value[], key: (item: Value) => Value, reverse: boolean): Value[] {
  const keyed = items.map((item) => ({ item, key: key(item) }));
  keyed.sort((a, b) => (reverse ? compareValues(b.key, a.key) : compareValues(a.key, b.key)));
  return keyed.map(({ item }) => item);
}

const keyOf = (attribute: Value, caseSensitive: Value): ((item: Value) => Value) => {
  const get = attributeGetter(attribute);
  return isTrue(caseSensitive) ? get : (item) => ignoreCase(get(item));
};

/** `sort` takes several attributes, separated by commas, and compares lists of them. */
function sortKey(attribute: Value, caseSensitive: Value): (item: Value) => Value {
  const parts = typeof attribute === "string" ? attribute.split(",") : [attribute];
  const keys = parts.map((part) => keyOf(part, caseSensitive));
  return (item) => keys.map((key) => key(item));
}

const dictSort = filterOf("dictsort", ["case_sensitive", "by", "reverse"], (value, args) => {
  const [caseSensitive = false, by = "key", reverse = false] = args;
  if (by !== "key" && by !== "value") throw valueError('you can only sort by either "key" or "value"');
  if (!isDict(value)) throw valueError(`dictsort needs a mapping, not ${typeName(value)}`);
  const pairs = dictEntries(value).map(([key, item]) => PyTuple.ofItems([key, item]));
  return sortBy(pairs, keyOf(by === "key" ? 0 : 1, caseSensitive), isTrue(reverse));
});

const unique = filterOf("unique", ["case_sensitive", "attribute"], (value, [caseSensitive = false, attribute]) => {
  const key = keyOf(attribute, caseSensitive);
  const seen = new Set<Value>();
  const kept = iterate(value).filter((item) => {
    const itemKey = key(item);
    checkHashable(itemKey);
    // Tuples are equal by their items, so by their text.
    const unit = Array.isArray(itemKey) ? `(${reprOf(itemKey)}` : dictKey(itemKey);
    return seen.size !== seen.add(unit).size;
  });
  return new LazySequence(kept);
});

const extreme = (name: string, direction: 1 | -1): Filter =>
  filterOf(name, ["case_sensitive", "attribute"], (value, [caseSensitive = false, attribute]) => {
    const key = keyOf(attribute, caseSensitive);
    let best: Value;
    let isFirst = true;
    for (const item of iterate(value)) {
      if (isFirst || compareValues(key(item), key(best)) * direction > 0) best = item;
      isFirst = false;
    }
    return best;
  });

/** `reverse`: a string stays a string; anything else becomes an iterator. */
function reverse(value: Value): Value {
  if (typeof value === "string") return Array.from(value).reverse().join("");
  if (value instanceof Markup) throw lacking("the filter 'reverse' over safe text");
  const reversed = [...iterate(value)].reverse();
  return value instanceof LazySequence ? reversed : new LazySequence(reversed, "list_reverseiterator");
}

/** Filters over sequences and dicts. */
const sequenceFilters: Readonly<Record<string, Filter>> = {
  join: filterOf("join", ["d", "attribute"], (value, [separator = "", attribute]) =>
    iterate(value).map(attributeGetter(attribute)).map(textOf).join(textOf(separator)),
  ),
  first: filterOf("first", [], (value) => (value instanceof LazySequence ? value.takeFirst() : iterate(value)[0])),
  last: filterOf("last", [], (value) => {
    if (value instanceof LazySequence) throw valueError(`'${value.kind}' object is not reversible`);
    if (value instanceof Markup) throw lacking("the filter 'last' over safe text");
    return iterate(value).at(-1);
  }),
  list: filterOf("list", [], (value) => [...iterate(value)]),
  reverse: filterOf("reverse", [], reverse),
  sort: filterOf(
    "sort",
    ["reverse", "case_sensitive", "attribute"],
    (value, [down = false, caseSensitive = false, attribute]) =>
      sortBy(iterate(value), sortKey(attribute, caseSensitive), isTrue(down)),
  ),
  items: filterOf("items", [], (value) => {
    if (value === undefined) return new LazySequence([]);
    if (!isDict(value)) throw valueError("Can only get item pairs from a mapping.");
    return new LazySequence(dictEntries(value).map(([key, item]) => PyTuple.ofItems([key, item])));
  }),
  dictsort: dictSort,
  unique,
  min: extreme("min", -1),
  max: extreme("max", 1),
};

/** A filter of text, which stays safe when it was. */
const onText = (name: string, apply: (text: string) => string): Filter =>
  filterOf(name, [], (value) => likeIn(value, apply(textOf(value))));

const likeIn = (value: Value, text: string): Value => (value instanceof Markup ? new Markup(text) : text);

const toJson = filterOf("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"], (value, args) => {
  const [ensureAscii = false, indent, separators, sortKeys = false] = args;
  if (args.length === 0) return writeJson(value, defaultJsonStyle);
  const level = indentText(indent);
  const [itemSeparator, keySeparator] =
    separators === undefined || separators === null
      ? [level === undefined ? ", " : ",", ": "]
      : iterate(separators).map((one) => stringArgument(one, "separator"));
  if (itemSeparator === undefined || keySeparator === undefined) throw valueError("separators must be two strings");
  return writeJson(value, {
    itemSeparator,
    keySeparator,
    ...(level !== undefined && { indent: level }),
    sortKeys: isTrue(sortKeys),
    ensureAscii: isTrue(ensureAscii),
  });
});

function indentText(indent: Value): string | undefined {
  if (indent === undefined || indent === null) return undefined;
  if (typeof indent === "string") return indent;
  const width = intArgument(indent, "indent");
  checkLength(width, 1000);
  return " ".repeat(Math.max(0, width));
}

const indent = filterOf("indent", ["width", "first", "blank"], (value, [width = 4, first, blank]) => {
  const level = indentText(width) ?? "";
  const lines = splitLines(`${stringArgument(value, "the indented value")}\n`);
  const rest = lines.slice(1).map((line) => (line === "" && !isTrue(blank) ? line : level + line));
  const text = [lines[0] ?? "", ...rest].join("\n");
  checkLength(text.length, maxTextChars);
  return likeIn(value, isTrue(first) ? level + text : text);
});

const escaped = (value: Value): Value => (value instanceof Markup ? value : new Markup(escapeHtml(textOf(value))));

/** Jinja2's `title`, which starts words only after blanks, hyphens and opening brackets. */
function titleWords(text: string): string {
  return text
    .split(/([-\s({[<]+)/)
    .map((word) => {
      const [first = ""] = word;
      return first.toUpperCase() + word.slice(first.length).toLowerCase();
    })
    .join("");
}

/** Filters that produce text or take it apart. */
const textFilters: Readonly<Record<string, Filter>> = {
  tojson: toJson,
  indent,
  string: onText("string", (text) => text),
  safe: filterOf("safe", [], (value) => new Markup(textOf(value))),
  escape: filterOf("escape", [], escaped),
  e: filterOf("escape", [], escaped),
  upper: onText("upper", (text) => text.toUpperCase()),
  lower: onText("lower", (text) => text.toLowerCase()),
  capitalize: onText("capitalize", capitalize),
  title: filterOf("title", [], (value) => titleWords(textOf(value))),
  trim: filterOf("trim", ["chars"], (value, [chars = null]) =>
    likeIn(value, strip(textOf(value), chars === null ? null : stringArgument(chars, "chars"), "both")),
  ),
  replace: filterOf("replace", ["old", "new", "count"], (value, args) => {
    if (args.length < 2) throw valueError("replace needs the old text and the new one");
    const [old, replacement, count = null] = args;
    return replace(textOf(value), textOf(old), textOf(replacement), count === null ? -1 : intArgument(count, "count"));
  }),
  format(value, args, keywords) {
    if (args.length > 0 && keywords.size > 0)
      throw valueError("can't handle positional and keyword arguments at the same time");
    if (value instanceof Markup) throw lacking("the filter 'format' over safe text");
    return formatPercent(textOf(value), keywords.size > 0 ? new Map(keywords) : PyTuple.ofItems(args));
  },
  length: filterOf("length", [], lengthOf),
  count: filterOf("count", [], lengthOf),
};
