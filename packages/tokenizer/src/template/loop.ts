import { equals } from "./compare.ts";
import { viewOf } from "./message-list.ts";
import { valueError } from "./template-error.ts";
import { Callable, type Value } from "./values.ts";

/** The variable `loop` of one running loop. */
export class LoopState {
  readonly items: readonly Value[];
  readonly depth0: number;
  /** Runs the loop's body over other items; only in a recursive loop. */
  readonly recurse: ((items: Value) => string) | undefined;
  index0 = 0;
  /** What `changed()` was given last. */
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

/** Of messages it says no more than whether there is one more. */
function isLast({ items, index0 }: LoopState): boolean {
  const view = viewOf(items);
  return view ? !view.has(index0 + 1) : index0 === items.length - 1;
}

/** `loop.name`; undefined when there is no such attribute. */
export function loopAttribute(loop: LoopState, name: string): Value {
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
