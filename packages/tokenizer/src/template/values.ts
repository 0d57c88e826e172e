import { viewOf } from "./message-list.ts";
import { limitError, valueError } from "./template-error.ts";

/**
 * A value of a template: null is None, undefined is Jinja2's undefined, a number is an int when it is integral and a
 * float when not, an array is a list, a plain object or a Map is a dict.
 */
export type Value = unknown;

/** Keyword arguments of a call. */
export type Keywords = ReadonlyMap<string, Value>;

/** A float with an integral value, which JavaScript's number would take for an int: `1.0`. */
export class PyFloat {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}

/** A tuple: a list that is written with parentheses. */
export class PyTuple extends Array<Value> {
  /** Names of its items, in a named tuple. */
  names: readonly string[] = [];

  static ofItems(items: Iterable<Value>): PyTuple {
    const tuple = new PyTuple();
    for (const item of items) tuple.push(item);
    return tuple;
  }

  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

/** What filters such as `map` and `select` give: true in itself, without a length, and empty after one pass. */
export class LazySequence {
  private items: readonly Value[];
  /** Python's name for its type. */
  readonly kind: string;

  constructor(items: readonly Value[], kind = "generator") {
    this.items = items;
    this.kind = kind;
  }

  /** All items that are left; afterwards it is empty. */
  take(): readonly Value[] {
    const { items } = this;
    this.items = [];
    return items;
  }

  /** The next item only, or undefined. */
  takeFirst(): Value {
    const [first, ...rest] = this.items;
    this.items = rest;
    return first;
  }
}

/** What `namespace()` gives: the one thing whose attributes a template may set. */
export class Namespace {
  readonly attributes = new Map<string, Value>();
}

/** Something that a template can call: a macro, a method bound to its object, a global function. */
export class Callable {
  readonly name: string;
  readonly call: (args: readonly Value[], keywords: Keywords) => Value;
  /** Attributes that the template can read, such as `current` of a cycler. */
  readonly attribute: (name: string) => Value;

  constructor(
    name: string,
    call: (args: readonly Value[], keywords: Keywords) => Value,
    attribute: (name: string) => Value = () => undefined,
  ) {
    this.name = name;
    this.call = call;
    this.attribute = attribute;
  }
}

export const noKeywords: Keywords = new Map();

/** A float as a value: a number unless that would look like an int. */
export function floatValue(value: number): Value {
  return Number.isInteger(value) ? new PyFloat(value) : value;
}

/**
 * From 2^64 on, a number of a request is taken for a float: `JSON.parse` does not tell `1e20` from an int, and ints of
 * that size are rarer.
 */
const firstFloat = 2 ** 64;

const isIntegral = (value: number): boolean => Number.isInteger(value) && Math.abs(value) < firstFloat;

export const isInt = (value: Value): value is number | bigint | boolean =>
  typeof value === "boolean" || typeof value === "bigint" || (typeof value === "number" && isIntegral(value));

export const isFloat = (value: Value): value is number | PyFloat =>
  value instanceof PyFloat || (typeof value === "number" && !isIntegral(value));

export const isNumeric = (value: Value): value is number | bigint | boolean | PyFloat =>
  typeof value === "number" || typeof value === "boolean" || typeof value === "bigint" || value instanceof PyFloat;

/** The number as a double. */
export function toDouble(value: number | bigint | boolean | PyFloat): number {
  return value instanceof PyFloat ? value.value : Number(value);
}

export type Dict = Map<Value, Value> | Record<string, Value>;

/** Whether the value is a dict: a Map, or an object that is none of the classes of this file. */
export function isDict(value: Value): value is Dict {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  if (value instanceof Map) return true;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

export function dictSize(dict: Dict): number {
  return dict instanceof Map ? dict.size : Object.keys(dict).length;
}

export function dictKeys(dict: Dict): Value[] {
  return dict instanceof Map ? [...dict.keys()] : Object.keys(dict);
}

export function dictEntries(dict: Dict): [Value, Value][] {
  return dict instanceof Map ? [...dict.entries()] : Object.entries(dict);
}

/** Own keys only, so that `constructor` and `__proto__` are keys like any other. */
export function dictHas(dict: Dict, key: Value): boolean {
  if (dict instanceof Map) return dict.has(dictKey(key));
  return typeof key === "string" && Object.hasOwn(dict, key);
}

export function dictGet(dict: Dict, key: Value): Value {
  if (dict instanceof Map) return dict.get(dictKey(key));
  return typeof key === "string" && Object.hasOwn(dict, key) ? dict[key] : undefined;
}

/** The key under which a Map holds a value: True and 1 and 1.0 are the same key in Python. */
export function dictKey(key: Value): Value {
  if (key === true) return 1;
  if (key === false) return 0;
  return key instanceof PyFloat ? key.value : key;
}

/** Whether Python takes the value for true. */
export function isTrue(value: Value): boolean {
  switch (typeof value) {
    case "boolean":
      return value;
    case "string":
      return value !== "";
    case "number":
      return value !== 0;
    case "bigint":
      return value !== 0n;
    case "object":
      return value !== null && isTrueObject(value);
    default:
      return false;
  }
}

function isTrueObject(value: object): boolean {
  if (Array.isArray(value)) return viewOf(value)?.has(0) ?? value.length > 0;
  if (value instanceof PyFloat) return value.value !== 0;
  if (!isDict(value)) return true;
  if (value instanceof Map) return value.size > 0;
  for (const key in value) if (Object.hasOwn(value, key)) return true;
  return false;
}

/** Python's name of the value's type, for messages. */
export function typeName(value: Value): string {
  if (value === undefined) return "Undefined";
  if (value === null) return "NoneType";
  if (typeof value === "string") return "str";
  if (typeof value === "boolean") return "bool";
  if (isInt(value)) return "int";
  if (isFloat(value)) return "float";
  if (value instanceof PyTuple) return "tuple";
  if (Array.isArray(value)) return "list";
  if (isDict(value)) return "dict";
  if (value instanceof LazySequence) return value.kind;
  if (value instanceof Namespace) return "Namespace";
  return value instanceof Callable ? "function" : "object";
}

/**
 * The items that a loop over the value visits.
 *
 * @throws TemplateError when Python cannot iterate over it
 */
export function iterate(value: Value): readonly Value[] {
  if (Array.isArray(value)) return value;
  if (typeof value === "string") return Array.from(value);
  if (value === undefined) return [];
  if (value instanceof LazySequence) return value.take();
  if (isDict(value)) return dictKeys(value);
  throw valueError(`'${typeName(value)}' object is not iterable`);
}

/**
 * Refuses what cannot be a key in Python: what can change.
 *
 * @throws TemplateError for a list or dict
 */
export function checkHashable(value: Value): void {
  if (value instanceof PyTuple) {
    for (const item of value) checkHashable(item);
  } else if (isDict(value) || Array.isArray(value)) {
    throw valueError(`unhashable type: '${typeName(value)}'`);
  }
}

/**
 * An int argument as a number.
 *
 * @throws TemplateError when it is none
 */
export function intArgument(value: Value, what: string): number {
  if (!isInt(value)) throw valueError(`${what} must be an integer, not ${typeName(value)}`);
  return Number(value);
}

/**
 * A string argument.
 *
 * @throws TemplateError when it is none
 */
export function stringArgument(value: Value, what: string): string {
  if (typeof value !== "string") throw valueError(`${what} must be str, not ${typeName(value)}`);
  return value;
}

/**
 * Refuses a length that passes a bound.
 *
 * @throws TemplateError when it does
 */
export function checkLength(length: number, max: number): void {
  if (length > max) throw limitError(`a value of ${length} elements or characters passes the bound of ${max}`);
}
