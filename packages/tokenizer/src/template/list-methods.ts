import { equals } from "./compare.ts";
import { valueError } from "./template-error.ts";
import { Callable, type Value } from "./values.ts";

const methods: Readonly<Record<string, (list: readonly Value[], args: readonly Value[]) => Value>> = {
  copy: (list) => [...list],
  count: (list, [item]) => list.filter((candidate) => equals(candidate, item)).length,
  index(list, [item]) {
    const index = list.findIndex((candidate) => equals(candidate, item));
    if (index < 0) throw valueError("the item is not in the list");
    return index;
  },
};

/** The method, bound to the list; undefined for `append` and the others that the immutable sandbox refuses. */
export function listMethod(list: readonly Value[], name: string): Value {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  return method && new Callable(name, (args) => method(list, args));
}
