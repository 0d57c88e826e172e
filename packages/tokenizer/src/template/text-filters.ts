import { getAttribute, lengthOf } from "./access.ts";
import { type Filter, filterOf } from "./filter.ts";
import { defaultJsonStyle, writeJson } from "./json-write.ts";
import { maxTextChars } from "./limits.ts";
import { formatPercent } from "./string-format.ts";
import { justify } from "./string-methods.ts";
import { valueError } from "./template-error.ts";
import { capitalize, codePoints, replace, splitLines, strip } from "./text.ts";
import {
  Callable,
  checkLength,
  intArgument,
  isDict,
  isTrue,
  iterate,
  PyTuple,
  stringArgument,
  type Value,
} from "./values.ts";
import { textOf } from "./write.ts";

const onText = (name: string, apply: (text: string) => Value): Filter =>
  filterOf(name, [], (value) => apply(textOf(value)));

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
  return isTrue(first) ? level + text : text;
});

/** Leeway of `truncate` in characters, Jinja2's policy. */
const truncateLeeway = 5;

const truncate = filterOf("truncate", ["length", "killwords", "end", "leeway"], (value, args) => {
  const [length = 255, killWords = false, end = "...", leeway = null] = args;
  const points = typeof value === "string" ? codePoints(value) : undefined;
  const tail = stringArgument(end, "end");
  const keep = intArgument(length, "length");
  if (keep < tail.length) throw valueError(`expected length >= ${tail.length}, got ${keep}`);
  const slack = leeway === null ? truncateLeeway : intArgument(leeway, "leeway");
  if ((points?.length ?? lengthOf(value)) <= keep + slack) return value;
  if (!points) throw valueError("only text can be truncated");
  const head = [...points].slice(0, keep - tail.length).join("");
  const cut = isTrue(killWords) ? -1 : head.lastIndexOf(" ");
  return (cut < 0 ? head : head.slice(0, cut)) + tail;
});

/** `title` of Jinja2, which starts words after blanks, hyphens and opening brackets only. */
function titleWords(text: string): string {
  return text
    .split(/([-\s({[<]+)/)
    .map((word) => {
      const [first = ""] = word;
      return first.toUpperCase() + word.slice(first.length).toLowerCase();
    })
    .join("");
}

function wordCount(text: string): number {
  return text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0;
}

function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll(">", "&gt;")
    .replaceAll("<", "&lt;")
    .replaceAll("'", "&#39;")
    .replaceAll('"', "&#34;");
}

/** Filters that give text, or take it apart. */
export const textFilters: Readonly<Record<string, Filter>> = {
  tojson: toJson,
  indent,
  truncate,
  string: onText("string", (text) => text),
  safe: onText("safe", (text) => text),
  escape: onText("escape", escapeHtml),
  e: onText("escape", escapeHtml),
  upper: onText("upper", (text) => text.toUpperCase()),
  lower: onText("lower", (text) => text.toLowerCase()),
  capitalize: onText("capitalize", capitalize),
  title: onText("title", titleWords),
  wordcount: onText("wordcount", wordCount),
  trim: filterOf("trim", ["chars"], (value, [chars = null]) =>
    strip(textOf(value), chars === null ? null : stringArgument(chars, "chars"), "both"),
  ),
  center: filterOf("center", ["width"], (value, [width = 80]) =>
    justify(textOf(value), intArgument(width, "width"), " ", "both"),
  ),
  replace: filterOf("replace", ["old", "new", "count"], (value, args) => {
    if (args.length < 2) throw valueError("replace needs the old text and the new one");
    const [old, replacement, count = null] = args;
    return replace(textOf(value), textOf(old), textOf(replacement), count === null ? -1 : intArgument(count, "count"));
  }),
  format(value, args, keywords) {
    if (args.length > 0 && keywords.size > 0)
      throw valueError("can't handle positional and keyword arguments at the same time");
    return formatPercent(textOf(value), keywords.size > 0 ? new Map(keywords) : PyTuple.ofItems(args));
  },
  attr: filterOf("attr", ["name"], (value, [name]) => {
    const attribute = stringArgument(name, "name");
    const found = getAttribute(value, attribute);
    return isDict(value) && !(found instanceof Callable) ? undefined : found;
  }),
  length: filterOf("length", [], lengthOf),
  count: filterOf("count", [], lengthOf),
};
