import { attributeGetter, type Filter } from "./filter.ts";
import { numberFilters } from "./number-filters.ts";
import { sequenceFilters } from "./sequence-filters.ts";
import { valueError } from "./template-error.ts";
import { testNamed } from "./tests.ts";
import { textFilters } from "./text-filters.ts";
import { isTrue, iterate, type Keywords, LazySequence, noKeywords, stringArgument, type Value } from "./values.ts";

/** The filter of that name, or undefined when there is none. */
export function filterNamed(name: string): Filter | undefined {
  for (const table of [textFilters, sequenceFilters, numberFilters, higherFilters]) {
    if (Object.hasOwn(table, name)) return table[name];
  }
  return undefined;
}

function map(value: Value, args: readonly Value[], keywords: Keywords): Value {
  // The arguments of a filter over nothing are not looked at either.
  if (!isTrue(value)) return new LazySequence([]);
  const apply = args.length === 0 && keywords.has("attribute") ? attributeOf(keywords) : filterOf(args, keywords);
  return new LazySequence(iterate(value).map(apply));
}

function attributeOf(keywords: Keywords): (item: Value) => Value {
  for (const keyword of keywords.keys()) {
    if (keyword !== "attribute" && keyword !== "default") throw valueError(`Unexpected keyword argument '${keyword}'`);
  }
  return attributeGetter(keywords.get("attribute"), keywords.get("default"));
}

function filterOf([name, ...rest]: readonly Value[], keywords: Keywords): (item: Value) => Value {
  if (name === undefined) throw valueError("map requires a filter argument");
  const filter = filterNamed(stringArgument(name, "the filter's name"));
  if (!filter) throw valueError(`No filter named '${String(name)}'.`);
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
  if (!test) throw valueError(`No test named '${String(name)}'.`);
  return (value) => test(value, args, noKeywords);
}

const higherFilters: Readonly<Record<string, Filter>> = {
  map,
  select: selector(true, false),
  reject: selector(false, false),
  selectattr: selector(true, true),
  rejectattr: selector(false, true),
};
