import type { Clock } from "@espalier/common";
import { bind } from "./arguments.ts";
import { maxRangeLength } from "./limits.ts";
import { formatTime } from "./strftime.ts";
import { limitError, TemplateError, valueError } from "./template-error.ts";
import {
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

/** What a template wrote of the time. */
export interface TimeRead {
  readonly format: string;
  readonly text: string;
}

export const timeNow = (clock: Clock, format: string): string => formatTime(new Date(clock.wallMs()), format);

/**
 * The functions that transformers and Jinja2 give to every template.
 *
 * @param noteTime told of what templates read of the clock
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
