import type { Clock } from "@espalier/core";
import { lacking, limitError, maxRangeLength, TemplateError, valueError } from "./template-error.ts";
import {
  bind,
  Callable,
  dictEntries,
  dictKey,
  intArgument,
  isDict,
  iterate,
  Namespace,
  stringArgument,
  type Value,
} from "./values.ts";
import { textOf } from "./write.ts";

/** A time that a template wrote. */
export interface TimeRead {
  readonly format: string;
  readonly text: string;
}

export const timeNow = (clock: Clock, format: string): string => formatTime(new Date(clock.wallMs()), format);

/**
 * The functions that transformers and Jinja2 give to every template.
 *
 * @param noteTime called with each time that a template reads from the clock
 */
export function createGlobals(clock: Clock, noteTime?: (read: TimeRead) => void): Readonly<Record<string, Value>> {
  return {
    range: new Callable("range", range),
    dict: new Callable("dict", (args, keywords) => dictOf(args, keywords)),
    namespace: new Callable("namespace", (args, keywords) => {
      const namespace = new Namespace();
      for (const [key, value] of dictOf(args, keywords)) namespace.attributes.set(stringArgument(key, "a name"), value);
      return namespace;
    }),
    raise_exception: new Callable("raise_exception", (args, keywords) => {
      const given = bind("raise_exception", ["message"], args, keywords);
      if (given.length === 0) throw valueError("raise_exception() needs a message");
      throw new TemplateError("raised", textOf(given[0]));
    }),
    strftime_now: new Callable("strftime_now", (args, keywords) => {
      const [given] = bind("strftime_now", ["format"], args, keywords);
      const format = stringArgument(given, "format");
      const text = timeNow(clock, format);
      noteTime?.({ format, text });
      return text;
    }),
    ...Object.fromEntries(lackingGlobals),
  };
}

/** Functions of Jinja2 that no chat template needs. */
const lackingGlobals = ["cycler", "joiner", "lipsum"].map((name) => [
  name,
  new Callable(name, () => {
    throw lacking(`the function ${name}()`);
  }),
]);

function range(args: readonly Value[]): Value[] {
  if (args.length > 3) throw valueError(`range expected at most 3 arguments, got ${args.length}`);
  const [first, second, third] = args;
  const start = second === undefined ? 0 : intArgument(first, "range()");
  const stop = intArgument(second === undefined ? first : second, "range()");
  const step = third === undefined ? 1 : intArgument(third, "range()");
  if (step === 0) throw valueError("range() arg 3 must not be zero");
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > maxRangeLength) throw limitError(`range() of ${length} elements exceeds the limit of ${maxRangeLength}`);
  return Array.from({ length }, (_, index) => start + index * step);
}

function dictOf(args: readonly Value[], keywords: ReadonlyMap<string, Value>): Map<Value, Value> {
  const dict = new Map<Value, Value>();
  const [source = new Map<Value, Value>()] = args;
  if (args.length > 1) throw valueError(`dict expected at most 1 argument, got ${args.length}`);
  const pairs = isDict(source) ? dictEntries(source) : iterate(source).map((pair) => iterate(pair));
  for (const pair of pairs) {
    if (pair.length !== 2) throw valueError("dict needs pairs");
    dict.set(dictKey(pair[0]), pair[1]);
  }
  for (const [key, value] of keywords) dict.set(key, value);
  return dict;
}

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const months = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

const pad = (value: number): string => String(value).padStart(2, "0");

/** Directives of C's `strftime` that chat templates use, in the C locale, which engines run in. */
const directives: Readonly<Record<string, (date: Date) => string>> = {
  a: (date) => days[date.getUTCDay()]!.slice(0, 3),
  A: (date) => days[date.getUTCDay()]!,
  b: (date) => months[date.getUTCMonth()]!.slice(0, 3),
  B: (date) => months[date.getUTCMonth()]!,
  d: (date) => pad(date.getUTCDate()),
  H: (date) => pad(date.getUTCHours()),
  I: (date) => pad(date.getUTCHours() % 12 || 12),
  m: (date) => pad(date.getUTCMonth() + 1),
  M: (date) => pad(date.getUTCMinutes()),
  p: (date) => (date.getUTCHours() < 12 ? "AM" : "PM"),
  S: (date) => pad(date.getUTCSeconds()),
  y: (date) => pad(date.getUTCFullYear() % 100),
  Y: (date) => String(date.getUTCFullYear()),
  "%": () => "%",
};

/**
 * `datetime.strftime` of a time without a zone. Uses the date's UTC fields: the caller shifts it to the engine's zone,
 * which is UTC in a container.
 *
 * @throws TemplateError for a directive that is lacking
 */
export function formatTime(date: Date, format: string): string {
  return format.replace(/%(-?)([A-Za-z%])/g, (whole, dash: string, letter: string) => {
    if (!Object.hasOwn(directives, letter)) throw lacking(`${whole} of strftime_now`);
    const text = directives[letter]!(date);
    // glibc's flag for no padding.
    return dash === "" ? text : text.replace(/^0+(?=.)/, "");
  });
}
