import { stringMethod } from "./string-methods.ts";
import { valueError } from "./template-error.ts";
import { codePointCount, codePoints } from "./text.ts";
import {
  bind,
  Callable,
  type Dict,
  dictEntries,
  dictGet,
  dictHas,
  dictKeys,
  equals,
  intArgument,
  isDict,
  isInt,
  LazySequence,
  Namespace,
  PyTuple,
  typeName,
  type Value,
  viewOf,
} from "./values.ts";

/** The boundary of Jinja2's sandbox: names of Python's inner attributes. */
const isInner = (name: string): boolean => name.startsWith("__") || name.startsWith("_");

/**
 * `object.name` as Jinja2's sandbox reads it: a method first, then a key, else undefined.
 *
 * @throws TemplateError when the object itself is undefined
 */
export function getAttribute(object: Value, name: string): Value {
  if (isDict(object)) {
    if (isDictMethod(name)) return dictMethod(object, name);
    return dictGet(object, name);
  }
  if (object instanceof LoopState) return loopAttribute(object, name);
  if (object instanceof Namespace) return object.attributes.get(name);
  if (object === undefined) throw valueError(`an undefined value has no attribute '${name}'`);
  if (isInner(name)) return undefined;
  return methodOf(object, name);
}

/** The bound method of a value that is no dict. */
function methodOf(object: Value, name: string): Value {
  if (typeof object === "string") {
    const method = stringMethod(name);
    return method && new Callable(name, (args, keywords) => method(object, args, keywords));
  }
  if (object instanceof PyTuple && object.names.includes(name)) return object[object.names.indexOf(name)];
  if (Array.isArray(object)) return listMethod(object, name);
  if (object instanceof Callable) return object.attribute(name);
  return undefined;
}

/**
 * `object[key]` as Jinja2 reads it: an element or key first, then an attribute, else undefined.
 *
 * @throws TemplateError when the object itself is undefined
 */
export function getItem(object: Value, key: Value): Value {
  if (isDict(object)) {
    if (dictHas(object, key)) return dictGet(object, key);
    return typeof key === "string" && isDictMethod(key) ? dictMethod(object, key) : undefined;
  }
  if (typeof key === "string") return getAttribute(object, key);
  if (Array.isArray(object) || typeof object === "string") {
    if (!isInt(key)) return undefined;
    const items = typeof object === "string" ? codePoints(object) : object;
    const index = Number(key);
    return items[index < 0 ? items.length + index : index];
  }
  if (object === undefined) throw valueError("an undefined value has no items");
  return undefined;
}

interface SliceBounds {
  readonly start: Value;
  readonly stop: Value;
  readonly step: Value;
}

/**
 * `object[start:stop:step]`; absent bounds are null.
 *
 * @throws TemplateError for a step of 0, bounds that are no ints, or an object that is no sequence
 */
export function getSlice(object: Value, bounds: SliceBounds): Value {
  if (object === undefined) throw valueError("an undefined value has no items");
  const step = bounds.step === null ? 1 : intArgument(bounds.step, "slice indices");
  if (step === 0) throw valueError("slice step cannot be zero");
  const view = step === 1 && bounds.stop === null && isInt(bounds.start) ? viewOf(object) : undefined;
  if (view && Number(bounds.start) >= 0) return view.slice(Number(bounds.start)).items;
  const items = typeof object === "string" ? codePoints(object) : object;
  if (typeof items !== "string" && !Array.isArray(items)) {
    throw valueError(`'${typeName(object)}' object cannot be sliced`);
  }
  const [start, stop] = clampBounds(bounds, items.length, step);
  const part = step === 1 ? items.slice(start, Math.max(start, stop)) : pick(items, start, stop, step);
  if (typeof object === "string") return typeof part === "string" ? part : part.join("");
  return object instanceof PyTuple ? PyTuple.ofItems(part) : part;
}

function clampBounds(bounds: SliceBounds, length: number, step: number): [number, number] {
  const low = step > 0 ? 0 : -1;
  const high = step > 0 ? length : length - 1;
  const clamp = (value: Value, otherwise: number): number => {
    if (value === null) return otherwise;
    const index = intArgument(value, "slice indices");
    return Math.min(Math.max(index < 0 ? index + length : index, low), high);
  };
  return [clamp(bounds.start, step > 0 ? low : high), clamp(bounds.stop, step > 0 ? high : low)];
}

function pick(items: string | readonly Value[], start: number, stop: number, step: number): Value[] {
  const picked: Value[] = [];
  for (let index = start; step > 0 ? index < stop : index > stop; index += step) picked.push(items[index]);
  return picked;
}

/**
 * `len(value)`.
 *
 * @throws TemplateError when the value has no length
 */
export function lengthOf(value: Value): number {
  if (typeof value === "string") return codePointCount(value);
  if (Array.isArray(value)) return value.length;
  if (value === undefined) return 0;
  if (isDict(value)) return value instanceof Map ? value.size : Object.keys(value).length;
  if (value instanceof LoopState) return value.items.length;
  if (value instanceof LazySequence) throw valueError(`object of type '${value.kind}' has no len()`);
  throw valueError(`object of type '${typeName(value)}' has no len()`);
}

/** The variable `loop` of one running loop. */
export class LoopState {
  readonly items: readonly Value[];
  readonly depth0: number;
  /** Runs the loop's body over other items; only in a recursive loop. */
  readonly recurse: ((items: Value) => string) | undefined;
  index0 = 0;
  /** The last arguments of `changed()`. */
  lastChecked: readonly Value[] | undefined;

  constructor(items: readonly Value[], depth0: number, recurse?: (items: Value) => string) {
    this.items = items;
    this.depth0 = depth0;
    this.recurse = recurse;
  }
}

const attributes: Readonly<Record<string, (loop: LoopState) => Value>> = {
  index: (loop) => loop.index0 + 1,
  index0: (loop) => loop.index0,
  revindex: (loop) => loop.items.length - loop.index0,
  revindex0: (loop) => loop.items.length - loop.index0 - 1,
  first: (loop) => loop.index0 === 0,
  last: isLast,
  length: (loop) => loop.items.length,
  previtem: (loop) => loop.items[loop.index0 - 1],
  nextitem: (loop) => loop.items[loop.index0 + 1],
  depth: (loop) => loop.depth0 + 1,
  depth0: (loop) => loop.depth0,
  cycle: (loop) => new Callable("cycle", (args) => cycle(loop, args)),
  changed: (loop) => new Callable("changed", (args) => changed(loop, args)),
};

const methods: Readonly<Record<string, (list: readonly Value[], args: readonly Value[]) => Value>> = {
  copy: (list) => [...list],
  count: (list, [item]) => list.filter((candidate) => equals(candidate, item)).length,
  index(list, [item, start = 0, stop = list.length]) {
    const [from, to] = [start, stop].map((bound) => {
      const index = intArgument(bound, "slice indices");
      return index < 0 ? index + list.length : index;
    }) as [number, number];
    const index = list.findIndex((candidate, at) => at >= from && at < to && equals(candidate, item));
    if (index < 0) throw valueError("the item is not in the list");
    return index;
  },
};

/** The fewest and the most arguments of a method. */
const argumentCounts: Readonly<Record<string, readonly [number, number]>> = { count: [1, 1], index: [1, 3] };

/** The method, bound to the list; undefined for `append` and the others that the immutable sandbox refuses. */
function listMethod(list: readonly Value[], name: string): Value {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (!method) return undefined;
  const [least, most] = argumentCounts[name] ?? [0, 0];
  return new Callable(name, (args, keywords) => {
    if (keywords.size > 0) throw valueError(`list.${name}() takes no keyword arguments`);
    if (args.length < least || args.length > most) {
      throw valueError(`list.${name}() takes ${least} to ${most} arguments (${args.length} given)`);
    }
    return method(list, args);
  });
}

/** Methods that the immutable sandbox allows. */
const readingMethods: Readonly<Record<string, (dict: Dict, args: readonly Value[]) => Value>> = {
  items: (dict) => dictEntries(dict).map(([key, value]) => PyTuple.ofItems([key, value])),
  keys: dictKeys,
  values: (dict) => dictEntries(dict).map(([, value]) => value),
  copy: (dict) => new Map(dictEntries(dict)),
  get(dict, [key, otherwise = null]) {
    return dictHas(dict, key) ? dictGet(dict, key) : otherwise;
  },
};

const parameters: Readonly<Record<string, readonly string[]>> = { get: ["key", "default"] };

/** Methods that would change the dict. The sandbox returns undefined, which fails when called. */
const changingMethods = new Set(["clear", "pop", "popitem", "setdefault", "update"]);

/** Whether `dict.name` is a method, which hides a key of that name. */
export function isDictMethod(name: string): boolean {
  return Object.hasOwn(readingMethods, name) || changingMethods.has(name);
}

/** The method, bound to the dict; undefined for one that would change it. */
function dictMethod(dict: Dict, name: string): Value {
  if (!Object.hasOwn(readingMethods, name)) return undefined;
  return new Callable(name, (args, keywords) => callDictMethod(dict, name, args, keywords));
}

/**
 * `dict.name(...)`.
 *
 * @throws TemplateError for wrong arguments
 */
export function callDictMethod(
  dict: Dict,
  name: string,
  args: readonly Value[],
  keywords: ReadonlyMap<string, Value>,
): Value {
  const method = Object.hasOwn(readingMethods, name) ? readingMethods[name] : undefined;
  if (!method) throw valueError(`access to attribute '${name}' of 'dict' object is unsafe`);
  if (keywords.size > 0) throw valueError(`dict.${name}() takes no keyword arguments`);
  if (name === "get" && args.length === 0) throw valueError("get expected at least 1 argument, got 0");
  return method(dict, bind(`dict.${name}`, parameters[name] ?? [], args, keywords));
}

/** Reads of messages only whether there is one more. */
function isLast({ items, index0 }: LoopState): boolean {
  const view = viewOf(items);
  return view ? !view.has(index0 + 1) : index0 === items.length - 1;
}

/** `loop.name`; undefined when there is no such attribute. */
function loopAttribute(loop: LoopState, name: string): Value {
  return Object.hasOwn(attributes, name) ? attributes[name]!(loop) : undefined;
}

function cycle(loop: LoopState, args: readonly Value[]): Value {
  if (args.length === 0) throw valueError("no items for cycling given");
  return args[loop.index0 % args.length];
}

function changed(loop: LoopState, args: readonly Value[]): boolean {
  const same = loop.lastChecked !== undefined && equals(loop.lastChecked, args);
  loop.lastChecked = args;
  return !same;
}
