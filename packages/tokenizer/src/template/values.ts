import { limitError, maxValueDepth, valueError } from "./template-error.ts";
import { compareText } from "./text.ts";

/**
 * A value of a template. Null is None, undefined is Jinja2's undefined, an integral number is an int and any other a
 * float, an array is a list, a plain object or a Map is a dict.
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

/** Text that the template called safe (`| safe`): what it adds with `+` to such a text is escaped for HTML. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A tuple: a list that is written with parentheses. */
export class PyTuple extends Array<Value> {
  static ofItems(items: Iterable<Value>): PyTuple {
    const tuple = new PyTuple();
    for (const item of items) tuple.push(item);
    return tuple;
  }

  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

/** The result of filters such as `map` and `select`: always true, without a length, and empty after one pass. */
export class LazySequence {
  private items: readonly Value[];
  /** Python's name for its type. */
  readonly kind: string;

  constructor(items: readonly Value[], kind = "generator") {
    this.items = items;
    this.kind = kind;
  }

  /** Takes all items that are left. */
  take(): readonly Value[] {
    const { items } = this;
    this.items = [];
    return items;
  }

  /** Takes the next item, or undefined. */
  takeFirst(): Value {
    const [first, ...rest] = this.items;
    this.items = rest;
    return first;
  }
}

/** The result of `namespace()`: the only value whose attributes a template may set. */
export class Namespace {
  readonly attributes = new Map<string, Value>();
}

/** Something that a template can call: a macro, a method bound to its object, a global function. */
export class Callable {
  readonly name: string;
  readonly call: (args: readonly Value[], keywords: Keywords) => Value;

  constructor(name: string, call: (args: readonly Value[], keywords: Keywords) => Value) {
    this.name = name;
    this.call = call;
  }
}

export const noKeywords: Keywords = new Map();

/** A float as a value: a number, unless that would look like an int. */
export function floatValue(value: number): Value {
  return Number.isInteger(value) ? new PyFloat(value) : value;
}

/**
 * From 2^64 on, a number of a request counts as a float: `JSON.parse` does not distinguish `1e20` from an int, and ints
 * of that size are rarer.
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

/** Checks only own keys, so that `constructor` and `__proto__` are keys like any other. */
export function dictHas(dict: Dict, key: Value): boolean {
  const own = dictKey(key);
  if (dict instanceof Map) return dict.has(own);
  return typeof own === "string" && Object.hasOwn(dict, own);
}

export function dictGet(dict: Dict, key: Value): Value {
  const own = dictKey(key);
  if (dict instanceof Map) return dict.get(own);
  return typeof own === "string" && Object.hasOwn(dict, own) ? dict[own] : undefined;
}

/** The Map key of a value: True, 1 and 1.0 are the same key in Python. */
export function dictKey(key: Value): Value {
  if (key === true) return 1;
  if (key === false) return 0;
  if (key instanceof Markup) return key.text;
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
  if (value instanceof Markup) return value.text !== "";
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
  if (value instanceof Markup) return "Markup";
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
  if (value instanceof Markup) return Array.from(value.text);
  if (value === undefined) return [];
  if (value instanceof LazySequence) return value.take();
  if (isDict(value)) return dictKeys(value);
  throw valueError(`'${typeName(value)}' object is not iterable`);
}

/**
 * Refuses values that cannot be keys in Python because they are mutable.
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
  if (value instanceof Markup) return value.text;
  if (typeof value !== "string") throw valueError(`${what} must be str, not ${typeName(value)}`);
  return value;
}

/**
 * Checks a length against a bound.
 *
 * @throws TemplateError beyond it
 */
export function checkLength(length: number, max: number): void {
  if (length > max) throw limitError(`a value of ${length} elements or characters exceeds the limit of ${max}`);
}

/** `left == right`: numbers by value, lists and dicts by their elements, the rest by identity. */
export function equals(left: Value, right: Value, depth = 0): boolean {
  if (left === right) return true;
  if (left instanceof Markup) return equals(left.text, right, depth);
  if (right instanceof Markup) return left === right.text;
  if (isNumeric(left) && isNumeric(right)) return equalNumbers(left, right);
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false;
  if (depth > maxValueDepth) throw limitError("a value exceeds the nesting limit");
  if (Array.isArray(left)) {
    if (!Array.isArray(right) || left.length !== right.length || isTuple(left) !== isTuple(right)) return false;
    return left.every((item, index) => equals(item, right[index], depth + 1));
  }
  if (!isDict(left) || !isDict(right) || dictSize(left) !== dictSize(right)) return false;
  return dictEntries(left).every(
    ([key, value]) => dictHas(right, key) && equals(value, dictGet(right, key), depth + 1),
  );
}

const isTuple = (list: object): boolean => list.constructor !== Array;

function equalNumbers(left: number | bigint | boolean | PyFloat, right: number | bigint | boolean | PyFloat): boolean {
  if (typeof left === "bigint") return equalsBigInt(left, right);
  if (typeof right === "bigint") return equalsBigInt(right, left);
  return toDouble(left) === toDouble(right);
}

function equalsBigInt(left: bigint, right: number | bigint | boolean | PyFloat): boolean {
  if (typeof right === "bigint") return left === right;
  const double = toDouble(right);
  return Number.isInteger(double) && BigInt(double) === left;
}

/**
 * The order of two values: below 0, 0 or above 0; NaN when neither is below the other.
 *
 * @throws TemplateError when Python has no order for them
 */
export function compareValues(left: Value, right: Value, operator = "<"): number {
  if (typeof left === "string" && typeof right === "string") return compareText(left, right);
  if (isNumeric(left) && isNumeric(right)) {
    if (typeof left === "bigint" || typeof right === "bigint") {
      const a = typeof left === "bigint" ? left : toDouble(left);
      const b = typeof right === "bigint" ? right : toDouble(right);
      return a < b ? -1 : a > b ? 1 : 0;
    }
    return toDouble(left) - toDouble(right);
  }
  if (Array.isArray(left) && Array.isArray(right) && isTuple(left) === isTuple(right)) {
    for (let index = 0; index < Math.min(left.length, right.length); index++) {
      if (!equals(left[index], right[index])) return compareValues(left[index], right[index], operator);
    }
    return left.length - right.length;
  }
  throw valueError(`'${operator}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`);
}

/**
 * `item in container`.
 *
 * @throws TemplateError when it is no container
 */
export function contains(container: Value, item: Value): boolean {
  if (container instanceof Markup) return contains(container.text, item);
  if (typeof container === "string") {
    if (typeof item === "string") return container.includes(item);
    if (item instanceof Markup) return container.includes(item.text);
    throw valueError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (Array.isArray(container)) {
    return container.some((candidate) => candidate === item || equals(candidate, item));
  }
  if (isDict(container)) {
    checkHashable(item);
    return dictHas(container, item);
  }
  if (container === null || isNumeric(container)) {
    throw valueError(`argument of type '${typeName(container)}' is not iterable`);
  }
  return iterate(container).some((candidate) => equals(candidate, item));
}

/**
 * Maps positional and keyword arguments to the named parameters; absent ones are undefined.
 *
 * @throws TemplateError for too many arguments, a repeated one, or a name that the function does not have
 */
export function bind(
  name: string,
  parameters: readonly string[],
  args: readonly Value[],
  keywords: Keywords,
): readonly Value[] {
  if (args.length > parameters.length) {
    throw valueError(`${name}() takes at most ${parameters.length} arguments (${args.length} given)`);
  }
  if (keywords.size === 0) return args;
  const values = [...args];
  for (const [keyword, value] of keywords) {
    const index = parameters.indexOf(keyword);
    if (index < 0) throw valueError(`${name}() got an unexpected keyword argument '${keyword}'`);
    if (index < args.length) throw valueError(`${name}() got multiple values for argument '${keyword}'`);
    values[index] = value;
  }
  return values;
}

/** The messages of a list from one of them on, as the value of a template's variable. */
export class MessageView {
  readonly list: MessageList;
  readonly offset: number;
  /** Looks like an array to its readers. */
  readonly items: readonly Value[];

  constructor(list: MessageList, offset: number) {
    this.list = list;
    this.offset = offset;
    this.items = new Proxy<Value[]>([], new ViewHandler(list, offset));
    views.set(this.items, this);
  }

  has(index: number): boolean {
    return this.list.has(this.offset + index);
  }

  /** `messages[start:]` */
  slice(start: number): MessageView {
    if (start > 0) this.has(start - 1);
    return this.list.from(this.offset + start);
  }
}

const views = new WeakMap<object, MessageView>();

/** The view whose items a value is. */
export function viewOf(value: Value): MessageView | undefined {
  return Array.isArray(value) ? views.get(value) : undefined;
}

/** Any access other than by index reads everything. */
class ViewHandler implements ProxyHandler<Value[]> {
  readonly #list: MessageList;
  readonly #offset: number;

  constructor(list: MessageList, offset: number) {
    this.#list = list;
    this.#offset = offset;
  }

  get(items: Value[], key: string | symbol, receiver: unknown): unknown {
    const at = indexOf(key);
    if (at !== undefined) {
      const index = this.#offset + at;
      return this.#list.has(index) ? this.#list.at(index) : undefined;
    }
    if (key === "length") {
      this.#list.isEndKnown = true;
      return Math.max(0, this.#list.count - this.#offset);
    }
    return Reflect.get(items, key, receiver);
  }

  has(items: Value[], key: string | symbol): boolean {
    return Reflect.has(this.#fill(items), key);
  }

  ownKeys(items: Value[]): (string | symbol)[] {
    return Reflect.ownKeys(this.#fill(items));
  }

  getOwnPropertyDescriptor(items: Value[], key: string | symbol): PropertyDescriptor | undefined {
    return Reflect.getOwnPropertyDescriptor(this.#fill(items), key);
  }

  #fill(items: Value[]): Value[] {
    this.#list.isEndKnown = true;
    for (let index = this.#offset + items.length; index < this.#list.count; index++) items.push(this.#list.at(index));
    return items;
  }
}

const [zero, nine] = [0x30, 0x39];

/** The index that a key denotes, if any. */
function indexOf(key: string | symbol): number | undefined {
  if (typeof key !== "string") return undefined;
  const first = key.charCodeAt(0);
  return first >= zero && first <= nine && String(Number(key)) === key ? Number(key) : undefined;
}

/**
 * The messages of a chat as a template sees them, each converted on first read. Records what a rendering has read of
 * them. A rendering that has read only the first few, and not their number, is the same so far in every chat that
 * begins with these.
 */
export class MessageList {
  readonly count: number;
  readonly #make: (index: number) => Record<string, Value>;
  readonly #made: (Record<string, Value> | undefined)[] = [];
  readonly #views = new Map<number, MessageView>();
  /** The rendering depends on at most this many of the first messages. */
  read = 0;
  /** The rendering requires at least this many messages. */
  least = 0;
  /** Whether the rendering depends on the number of messages. */
  isEndKnown = false;

  /** @param make its errors are those of reading that message */
  constructor(count: number, make: (index: number) => Record<string, Value>) {
    this.count = count;
    this.#make = make;
  }

  /** Whether there is a message with this index. */
  has(index: number): boolean {
    if (index >= this.count) {
      this.isEndKnown = true;
      return false;
    }
    this.least = Math.max(this.least, index + 1);
    return true;
  }

  /** One of the messages. */
  at(index: number): Record<string, Value> {
    this.read = Math.max(this.read, index + 1);
    return this.made(index);
  }

  /** Reads a message without making the rendering depend on it. */
  made(index: number): Record<string, Value> {
    this.#made[index] ??= this.#make(index);
    return this.#made[index];
  }

  /** The messages from one of them on. */
  from(offset: number): MessageView {
    const known = this.#views.get(offset);
    if (known) return known;
    const view = new MessageView(this, offset);
    this.#views.set(offset, view);
    return view;
  }
}
