import { getItem } from "./access.ts";
import { bind } from "./arguments.ts";
import type { Keywords, Value } from "./values.ts";

/** A filter: the value before the bar, then its arguments. */
export type Filter = (value: Value, args: readonly Value[], keywords: Keywords) => Value;

/** A filter whose arguments may be given by position or by name; absent ones are undefined. */
export function filterOf(
  name: string,
  parameters: readonly string[],
  apply: (value: Value, args: readonly Value[]) => Value,
): Filter {
  return (value, args, keywords) => apply(value, bind(name, parameters, args, keywords));
}

/**
 * Reads an attribute path such as `function.name` or `0` from an item, as the `attribute` of filters does. None takes
 * the item itself.
 */
export function attributeGetter(attribute: Value, otherwise?: Value): (item: Value) => Value {
  if (attribute === undefined || attribute === null) return (item) => item;
  const parts = typeof attribute === "string" ? attribute.split(".").map(pathPart) : [attribute];
  return (item) => {
    let value = item;
    for (const part of parts) {
      value = getItem(value, part);
      if (value === undefined && otherwise !== null) value = otherwise;
    }
    return value;
  };
}

const pathPart = (part: string): string | number => (/^\d+$/.test(part) ? Number(part) : part);

/** Strings in lower case, for filters that do not tell cases apart. */
export const ignoreCase = (value: Value): Value => (typeof value === "string" ? value.toLowerCase() : value);
