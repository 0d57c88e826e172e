import { dictMethod, isDictMethod } from "./dict-methods.ts";
import { listMethod } from "./list-methods.ts";
import { LoopState, loopAttribute } from "./loop.ts";
import { viewOf } from "./message-list.ts";
import { stringMethod } from "./string-methods.ts";
import { valueError } from "./template-error.ts";
import { codePointCount, codePoints } from "./text.ts";
import {
  Callable,
  dictGet,
  dictHas,
  intArgument,
  isDict,
  isInt,
  LazySequence,
  Namespace,
  PyTuple,
  typeName,
  type Value,
} from "./values.ts";

/** Where Jinja2's sandbox ends: names of Python's inner attributes. */
const isInner = (name: string): boolean => name.startsWith("__") || name.startsWith("_");

/**
 * `object.name` as Jinja2's sandbox reads it: a method first, then a key; nothing found is undefined.
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

/** The method of a value that is no dict, bound to it. */
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
 * `object[key]` as Jinja2 reads it: an element or key first, then an attribute; nothing found is undefined.
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

export interface SliceBounds {
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
 * @throws TemplateError when it has none
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
