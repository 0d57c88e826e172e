import { bind } from "./arguments.ts";
import { valueError } from "./template-error.ts";
import { Callable, type Dict, dictEntries, dictGet, dictHas, dictKeys, PyTuple, type Value } from "./values.ts";

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

/** Methods that would change the dict: the sandbox gives undefined, which fails when it is called. */
const changingMethods = new Set(["clear", "pop", "popitem", "setdefault", "update"]);

/** Whether `dict.name` is a method, which hides a key of that name. */
export function isDictMethod(name: string): boolean {
  return Object.hasOwn(readingMethods, name) || changingMethods.has(name);
}

/** The method, bound to the dict; undefined for one that would change it. */
export function dictMethod(dict: Dict, name: string): Value {
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
