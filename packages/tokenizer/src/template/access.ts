import { stringMethod } from "./string-methods.ts";
import { lacking, valueError } from "./template-error.ts";
import { codePointCount, codePoints } from "./text.ts";
import {
  bind,
  Callable,
  type Dict,
  dictEntries,
  dictGet,
  dictHas,
  dictKeys,
  intArgument,
  isDict,
  isInt,
  LazySequence,
  Markup,
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
  if (object instanceof Markup) throw lacking("methods of safe text");
  if (isInner(name)) return undefined;
  return methodOf(object, name);
}

/** The bound method of a value that is no dict. */
function methodOf(object: Value, name: string): Value {
  if (typeof object === "string") {
    const method = stringMethod(name);
    return method && new Callable(name, (args, keywords) => method(object, args, keywords));
  }
  if (Array.isArray(object) && listMethods.has(name)) throw lacking(`the method list.${name}()`);
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
  if (object instanceof Markup) throw lacking("items of safe text");
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
  if (object instanceof Markup) throw lacking("slices of safe text");
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
  if (value instanceof Markup) return codePointCount(value.text);
  if (Array.isArray(value)) return value.length;
  if (value === undefined) return 0;
  if (isDict(value)) return value instanceof Map ? value.size : Object.keys(value).length;
  if (value instanceof LazySequence) throw valueError(`object of type '${value.kind}' has no len()`);
  throw valueError(`object of type '${typeName(value)}' has no len()`);
}

/** The variable `loop` of one running loop. */
export class LoopState {
  readonly items: readonly Value[];
  index0 = 0;

  constructor(items: readonly Value[]) {
    this.items = items;
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
};

/** Methods of lists that only read; the immutable sandbox refuses the others, which are undefined here. */
const listMethods = new Set(["copy", "count", "index"]);

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

function loopAttribute(loop: LoopState, name: string): Value {
  if (!Object.hasOwn(attributes, name)) throw lacking(`the attribute loop.${name}`);
  return attributes[name]!(loop);
}
