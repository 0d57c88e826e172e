import { type MessageList, viewOf } from "./message-list.ts";
import type { Frame } from "./runtime.ts";
import { Callable, isDict, Namespace, PyFloat, type Value } from "./values.ts";

/** Stands for messages from one of them on: each rendering has its own list. */
class SavedView {
  readonly offset: number;

  constructor(offset: number) {
    this.offset = offset;
  }
}

type SavedNamespace = ReadonlyMap<string, Value>;

/** Variables of a template as they were between two turns of a loop. */
export interface SavedSlots {
  readonly values: readonly (readonly [slot: number, value: Value])[];
  /** Namespaces as they were, since templates go on to change them. */
  readonly namespaces: ReadonlyMap<Namespace, SavedNamespace>;
}

/** What a template may keep in a variable though it belongs to one rendering, because each has the same. */
export interface StateRules {
  /** Slots in which no macro ever is but the one that is defined there. */
  readonly macroSlots: ReadonlySet<number>;
  /** The functions that every rendering has. */
  readonly constants: ReadonlySet<Value>;
}

/** Values in variables that are looked at, those inside one another as well. A template that keeps more is not resumed. */
const maxValues = 4_096;
/** What a value takes besides its characters, in bytes. */
const valueBytes = 48;

/** Takes variables down. */
export function saveSlots(frame: Frame, slots: Iterable<number>): SavedSlots {
  const values: (readonly [number, Value])[] = [];
  const namespaces = new Map<Namespace, SavedNamespace>();
  for (const slot of slots) {
    const value = frame.slots[slot];
    values.push([slot, savedValue(value)]);
    if (!(value instanceof Namespace) || namespaces.has(value)) continue;
    namespaces.set(value, new Map([...value.attributes].map(([name, held]) => [name, savedValue(held)])));
  }
  return { values, namespaces };
}

function savedValue(value: Value): Value {
  const view = viewOf(value);
  return view ? new SavedView(view.offset) : value;
}

/** Gives variables to another rendering, which has defined its macros. */
export function restoreSlots(
  frame: Frame,
  { values, namespaces }: SavedSlots,
  { messages, macroSlots }: { readonly messages: MessageList; readonly macroSlots: ReadonlySet<number> },
): void {
  const restored = (value: Value): Value => (value instanceof SavedView ? messages.from(value.offset).items : value);
  const copies = new Map<Namespace, Namespace>();
  for (const [namespace, attributes] of namespaces) {
    const copy = new Namespace();
    for (const [name, value] of attributes) copy.attributes.set(name, restored(value));
    copies.set(namespace, copy);
  }
  for (const [slot, value] of values) {
    if (value instanceof Callable && macroSlots.has(slot)) continue;
    frame.slots[slot] = value instanceof Namespace ? copies.get(value) : restored(value);
  }
}

/**
 * What variables take, if they can be given to another rendering: what changes in the course of one (namespaces inside
 * other values, iterators, cyclers) or belongs to it (loops, macros that are defined by the way) cannot.
 *
 * @param given what the rendering was given: it does not change, and is not counted
 * @returns bytes, or undefined
 */
export function sizeOfSlots(
  { values, namespaces }: SavedSlots,
  given: Readonly<Record<string, Value>>,
  { macroSlots, constants }: StateRules,
): number | undefined {
  const known = Object.values(given);
  let left = maxValues;
  let chars = 0;
  const isPlain = (value: Value): boolean => {
    if (--left < 0) return false;
    if (typeof value === "string") chars += value.length;
    if (typeof value !== "object" || value === null || value instanceof PyFloat) return typeof value !== "function";
    if (viewOf(value)) return false;
    if (known.includes(value) || constants.has(value)) return true;
    if (Array.isArray(value)) return value.every(isPlain);
    if (value instanceof Map) return [...value.keys()].every(isPlain) && [...value.values()].every(isPlain);
    return isDict(value) && Object.values(value).every(isPlain);
  };
  const isKept = (value: Value): boolean => value instanceof SavedView || isPlain(value);
  const areKept =
    values.every(([slot, value]) => {
      return value instanceof Namespace || (value instanceof Callable && macroSlots.has(slot)) || isKept(value);
    }) && [...namespaces.values()].every((attributes) => [...attributes.values()].every(isKept));
  return areKept ? 2 * chars + (maxValues - left + values.length) * valueBytes : undefined;
}
