import type { Clock } from "@espalier/core";
import { limitError, maxRangeLength, TemplateError, valueError } from "./template-error.ts";
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
    cycler: new Callable("cycler", cycler),
    joiner: new Callable("joiner", (args, keywords) => {
      const [separator = ", "] = bind("joiner", ["sep"], args, keywords);
      let used = false;
      return new Callable("joiner", () => {
        const text = used ? separator : "";
        used = true;
        return text;
      });
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
  };
}

function range(args: readonly Value[]): Value[] {
  if (args.length > 3) throw valueError(`range expected at most 3 arguments, got ${args.length}`);
  const [first, second, third] = args;
  const start = second === undefined ? 0 : intArgument(first, "range()");
  const stop = intArgument(second === undefined ? first : second, "range()");
  const step = third === undefined ? 1 : intArgument(third, "range()");
  if (step === 0) throw valueError("range() arg 3 must not be zero");
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > maxRangeLength) throw limitError(`range() of ${length} elements passes the bound of ${maxRangeLength}`);
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

function cycler(items: readonly Value[]): Callable {
  if (items.length === 0) throw valueError("at least one item has to be provided");
  let position = 0;
  const next = new Callable("next", () => {
    const item = items[position];
    position = (position + 1) % items.length;
    return item;
  });
  const reset = new Callable("reset", () => {
    position = 0;
    return null;
  });
  const call = (): Value => {
    throw valueError("'Cycler' object is not callable");
  };
  return new Callable("Cycler", call, (name) => {
    if (name === "next") return next;
    if (name === "reset") return reset;
    return name === "current" ? items[position] : undefined;
  });
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

const pad = (value: number, width = 2, fill = "0"): string => String(value).padStart(width, fill);
const dayOfYear = (date: Date): number =>
  Math.floor((date.getTime() - Date.UTC(date.getUTCFullYear(), 0, 1)) / 86_400_000) + 1;
const hour12 = (date: Date): number => date.getUTCHours() % 12 || 12;

/** Directives of C's `strftime` in the C locale, which engines run in. */
const directives: Readonly<Record<string, (date: Date) => string>> = {
  a: (date) => days[date.getUTCDay()]!.slice(0, 3),
  A: (date) => days[date.getUTCDay()]!,
  b: (date) => months[date.getUTCMonth()]!.slice(0, 3),
  B: (date) => months[date.getUTCMonth()]!,
  c: (date) => formatTime(date, "%a %b %e %H:%M:%S %Y"),
  C: (date) => pad(Math.floor(date.getUTCFullYear() / 100)),
  d: (date) => pad(date.getUTCDate()),
  D: (date) => formatTime(date, "%m/%d/%y"),
  e: (date) => pad(date.getUTCDate(), 2, " "),
  f: (date) => pad(date.getUTCMilliseconds() * 1000, 6),
  F: (date) => formatTime(date, "%Y-%m-%d"),
  h: (date) => formatTime(date, "%b"),
  H: (date) => pad(date.getUTCHours()),
  I: (date) => pad(hour12(date)),
  j: (date) => pad(dayOfYear(date), 3),
  k: (date) => pad(date.getUTCHours(), 2, " "),
  l: (date) => pad(hour12(date), 2, " "),
  m: (date) => pad(date.getUTCMonth() + 1),
  M: (date) => pad(date.getUTCMinutes()),
  n: () => "\n",
  p: (date) => (date.getUTCHours() < 12 ? "AM" : "PM"),
  P: (date) => (date.getUTCHours() < 12 ? "am" : "pm"),
  r: (date) => formatTime(date, "%I:%M:%S %p"),
  R: (date) => formatTime(date, "%H:%M"),
  S: (date) => pad(date.getUTCSeconds()),
  t: () => "\t",
  T: (date) => formatTime(date, "%H:%M:%S"),
  u: (date) => String(date.getUTCDay() || 7),
  w: (date) => String(date.getUTCDay()),
  x: (date) => formatTime(date, "%m/%d/%y"),
  X: (date) => formatTime(date, "%H:%M:%S"),
  y: (date) => pad(date.getUTCFullYear() % 100),
  Y: (date) => String(date.getUTCFullYear()),
  z: () => "",
  Z: () => "",
  "%": () => "%",
};

/**
 * `datetime.strftime` of a time without a zone. Uses the date's UTC fields: the caller shifts it to the engine's zone,
 * which is UTC in a container.
 *
 * @throws TemplateError for a directive whose text depends on the platform
 */
export function formatTime(date: Date, format: string): string {
  return format.replace(/%(-?)([A-Za-z%])/g, (whole, dash: string, letter: string) => {
    if (!Object.hasOwn(directives, letter)) throw valueError(`strftime_now: ${whole} is not supported`);
    const text = directives[letter]!(date);
    // glibc's flag for no padding.
    return dash === "" ? text : text.replace(/^[0 ]+(?=.)/, "");
  });
}
