import { equals } from "./compare.ts";
import { valueError } from "./template-error.ts";
import { Callable, intArgument, type Value } from "./values.ts";

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
export function listMethod(list: readonly Value[], name: string): Value {
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
