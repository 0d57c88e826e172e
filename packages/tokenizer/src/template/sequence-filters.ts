import { compareValues, equals } from "./compare.ts";
import { attributeGetter, type Filter, filterOf, ignoreCase } from "./filter.ts";
import { maxListLength } from "./limits.ts";
import { arithmetic } from "./numbers.ts";
import { valueError } from "./template-error.ts";
import {
  checkHashable,
  checkLength,
  dictEntries,
  dictKey,
  intArgument,
  isDict,
  isTrue,
  iterate,
  LazySequence,
  PyTuple,
  typeName,
  type Value,
} from "./values.ts";
import { reprOf, textOf } from "./write.ts";

/** A stable sort by keys, as Python's `sorted`: a reversed one keeps the order of equals too. */
function sortBy(items: readonly Value[], key: (item: Value) => Value, reverse: boolean): Value[] {
  const keyed = items.map((item) => ({ item, key: key(item) }));
  keyed.sort((a, b) => (reverse ? compareValues(b.key, a.key) : compareValues(a.key, b.key)));
  return keyed.map(({ item }) => item);
}

const keyOf = (attribute: Value, caseSensitive: Value, otherwise?: Value): ((item: Value) => Value) => {
  const get = attributeGetter(attribute, otherwise);
  return isTrue(caseSensitive) ? get : (item) => ignoreCase(get(item));
};

/** `sort` takes several attributes, with commas between them, and compares lists of them. */
function sortKey(attribute: Value, caseSensitive: Value): (item: Value) => Value {
  const parts = typeof attribute === "string" ? attribute.split(",") : [attribute];
  const keys = parts.map((part) => keyOf(part, caseSensitive));
  return (item) => keys.map((key) => key(item));
}

const groupBy = filterOf("groupby", ["attribute", "default", "case_sensitive"], (value, args) => {
  const [attribute, otherwise, caseSensitive = false] = args;
  const key = keyOf(attribute, caseSensitive, otherwise);
  const real = attributeGetter(attribute, otherwise);
  const groups: { readonly key: Value; readonly items: Value[] }[] = [];
  for (const item of sortBy(iterate(value), key, false)) {
    const last = groups.at(-1);
    const itemKey = key(item);
    if (last && equals(last.key, itemKey)) last.items.push(item);
    else groups.push({ key: itemKey, items: [item] });
  }
  return groups.map(({ items }) => {
    const group = PyTuple.ofItems([real(items[0]), items]);
    group.names = ["grouper", "list"];
    return group;
  });
});

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
    // Tuples are equal by their items, which their text tells.
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

const batch = filterOf("batch", ["linecount", "fill_with"], (value, [lineCount, fill = null]) => {
  const size = intArgument(lineCount, "linecount");
  checkLength(size, maxListLength);
  const items = iterate(value);
  // Jinja2 starts a line when the last one has just that size, which a line never has below 1 but when it is empty.
  const width = size < 1 ? Math.max(1, items.length) : size;
  const lines: Value[][] = size === 0 && items.length > 0 ? [[]] : [];
  for (let start = 0; start < items.length; start += width) lines.push(items.slice(start, start + width));
  const last = lines.at(-1);
  while (last && fill !== null && last.length < size) last.push(fill);
  return new LazySequence(lines);
});

const slices = filterOf("slice", ["slices", "fill_with"], (value, [slices, fill = null]) => {
  const count = intArgument(slices, "slices");
  if (count === 0) throw valueError("integer division or modulo by zero");
  checkLength(count, maxListLength);
  const items = iterate(value);
  const each = Math.floor(items.length / count);
  const extra = items.length % count;
  const parts: Value[][] = [];
  let start = 0;
  for (let index = 0; index < count; index++) {
    const stop = start + each + (index < extra ? 1 : 0);
    const part = items.slice(start, stop);
    if (fill !== null && index >= extra) part.push(fill);
    parts.push(part);
    start = stop;
  }
  return new LazySequence(parts);
});

/** `reverse`: a string stays one, anything else becomes an iterator. */
function reverse(value: Value): Value {
  if (typeof value === "string") return Array.from(value).reverse().join("");
  const reversed = [...iterate(value)].reverse();
  return value instanceof LazySequence ? reversed : new LazySequence(reversed, "list_reverseiterator");
}

/** Filters over sequences and dicts. */
export const sequenceFilters: Readonly<Record<string, Filter>> = {
  join: filterOf("join", ["d", "attribute"], (value, [separator = "", attribute]) =>
    iterate(value).map(attributeGetter(attribute)).map(textOf).join(textOf(separator)),
  ),
  first: filterOf("first", [], (value) => (value instanceof LazySequence ? value.takeFirst() : iterate(value)[0])),
  last: filterOf("last", [], (value) => {
    if (value instanceof LazySequence) throw valueError(`'${value.kind}' object is not reversible`);
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
  sum: filterOf("sum", ["attribute", "start"], (value, [attribute, start = 0]) => {
    let total = start;
    for (const item of iterate(value).map(attributeGetter(attribute))) {
      const next = Array.isArray(total) && Array.isArray(item) ? [...total, ...item] : arithmetic("+", total, item);
      if (next === undefined)
        throw valueError(`unsupported operand type(s) for +: '${typeName(total)}' and '${typeName(item)}'`);
      total = next;
    }
    return total;
  }),
  groupby: groupBy,
  dictsort: dictSort,
  unique,
  min: extreme("min", -1),
  max: extreme("max", 1),
  batch,
  slice: slices,
};
