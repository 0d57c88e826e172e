import type { Node } from "./parse.ts";
import { type Execute, Frame, Runtime, runOn, Scope, storesOf } from "./runtime.ts";
import { compileFor, compileStatement, type LoopPlace, type ResumableLoop } from "./statement.ts";
import { Callable, isDict, Markup, type MessageList, Namespace, PyFloat, type Value, viewOf } from "./values.ts";

type Variables = Readonly<Record<string, Value>>;

/** A template as a function from its variables to its text. */
export interface RenderTemplate {
  /** @throws TemplateError where Python would raise and at the renderer's bounds */
  (variables: Variables): string;
  /**
   * Like the call, for a chat whose messages are a list that records what is read of it. Can resume from an earlier
   * rendering.
   *
   * @param from a state of a rendering with the same other variables and the same first messages
   * @param shared how many of the first messages other chats are likely to share
   */
  readonly resume: (variables: Variables, messages: MessageList, from?: TemplateState, shared?: number) => Resumed;
}

/**
 * A rendering after some of the messages. It is the same in every chat that shares the messages read so far and has at
 * least the number of messages looked for.
 */
export interface TemplateState {
  /** How many messages were rendered. */
  readonly messages: number;
  /** How many of the first messages a chat must share: more than those rendered when the template looks ahead. */
  readonly needed: number;
  /** The least number of messages a chat must have. */
  readonly least: number;
  /** The current loop, by its index among the template's statements; the first of its messages. */
  readonly statement: number;
  readonly offset: number;
  readonly isEmpty: boolean;
  readonly slots: SavedSlots;
  readonly chars: number;
  readonly steps: number;
}

/** A state that later renderings can resume from. */
export interface ReachedState {
  readonly state: TemplateState;
  /** Its size in bytes. */
  readonly sizeBytes: number;
  /** Characters of the text before it. */
  readonly length: number;
}

interface Resumed {
  /** The text after the state. */
  readonly text: string;
  /** The last state, and the last one within the shared messages. */
  readonly states: readonly ReachedState[];
}

interface Step {
  readonly run: Execute;
  readonly loop: ResumableLoop | undefined;
  /** A macro belongs to one rendering, so each rendering defines it again. */
  readonly isMacro: boolean;
}

/**
 * Compiles a parsed template to closures over numbered slots.
 *
 * @param globals functions that every template has; a variable of the same name takes precedence
 * @throws TemplateError for a construct that Jinja2 lacks
 */
export function compileTemplate(program: Node, globals: Readonly<Record<string, Value>>): RenderTemplate {
  const scope = Scope.root();
  const nodes = program.type === "Program" ? program.body : [program];
  scope.declareStores(nodes);
  const steps = nodes.filter(({ type }) => type !== "Comment").map((node) => compileStep(node, scope));
  const stores = storesOf(nodes);
  const isStoredOnce = (name: string): boolean => stores.indexOf(name) === stores.lastIndexOf(name);
  const macros = nodes.flatMap((node) =>
    node.type === "Macro" && isStoredOnce(node.name.value) ? [node.name.value] : [],
  );
  const rules: StateRules = {
    macroSlots: new Set(macros.map((name) => scope.ownSlots.get(name)!)),
    constants: new Set(Object.values(globals)),
  };

  const open = (variables: Variables, messages?: MessageList): Frame => {
    const runtime = new Runtime(variables, globals);
    const frame = new Frame(scope.layout.slotCount, runtime);
    for (const { name, slot } of scope.resolved) {
      frame.slots[slot] = messages && name === "messages" ? messages.from(0).items : runtime.resolve(name);
    }
    return frame;
  };
  const render = (variables: Variables): string => {
    const frame = open(variables);
    for (const { run } of steps) if (run(frame) !== runOn) break;
    return frame.runtime.text();
  };
  const resume: RenderTemplate["resume"] = (variables, messages, from, shared = 0) => {
    const frame = open(variables, messages);
    const { runtime } = frame;
    const found: { shared?: Found; last?: Found } = {};
    const note = (statement: number, { view, index, isEmpty }: LoopPlace): void => {
      if (messages.isEndKnown) return;
      const { offset } = view;
      const needed = Math.max(messages.read, offset + index);
      const slots = saveSlots(frame, scope.ownSlots.values());
      const state = {
        messages: offset + index,
        needed,
        least: messages.least,
        statement,
        offset,
        isEmpty,
        slots,
        chars: runtime.chars,
        steps: runtime.steps,
      };
      found.last = { state, pieces: runtime.pieces };
      if (needed <= shared) found.shared = found.last;
    };
    if (from) {
      messages.read = from.needed;
      messages.least = from.least;
      runtime.chars = from.chars;
      runtime.steps = from.steps;
      for (let before = 0; before < from.statement; before++) if (steps[before]!.isMacro) steps[before]!.run(frame);
      restoreSlots(frame, from.slots, { messages, macroSlots: rules.macroSlots });
    }
    for (let statement = from?.statement ?? 0; statement < steps.length; statement++) {
      const { run, loop } = steps[statement]!;
      const place =
        from?.statement === statement
          ? { view: messages.from(from.offset), index: from.messages - from.offset, isEmpty: from.isEmpty }
          : undefined;
      const signal = loop ? loop(frame, place, (turn) => note(statement, turn)) : run(frame);
      if (signal !== runOn) break;
    }
    const states: ReachedState[] = [];
    for (const end of found.shared === found.last ? [found.last] : [found.shared, found.last]) {
      const sizeBytes = end && sizeOfSlots(end.state.slots, variables, rules);
      if (sizeBytes !== undefined) states.push({ state: end!.state, sizeBytes, length: runtime.lengthOf(end!.pieces) });
    }
    return { text: runtime.text(), states };
  };
  return Object.assign(render, { resume });
}

interface Found {
  readonly state: TemplateState;
  readonly pieces: number;
}

function compileStep(node: Node, scope: Scope): Step {
  if (node.type === "For") {
    const loop = compileFor(node, scope);
    return { run: (frame) => loop(frame, undefined, undefined), loop, isMacro: false };
  }
  return { run: compileStatement(node, scope), loop: undefined, isMacro: node.type === "Macro" };
}

/** Represents the messages from one of them on: each rendering has its own list. */
class SavedView {
  readonly offset: number;

  constructor(offset: number) {
    this.offset = offset;
  }
}

type SavedNamespace = ReadonlyMap<string, Value>;

/** Variables of a template as they were between two turns of a loop. */
interface SavedSlots {
  readonly values: readonly (readonly [slot: number, value: Value])[];
  /** Namespaces as they were, since templates change them later. */
  readonly namespaces: ReadonlyMap<Namespace, SavedNamespace>;
}

/**
 * Values that a template may keep in a variable although they belong to one rendering, because each rendering has the
 * same.
 */
interface StateRules {
  /** Slots that only ever contain the macro that is defined there. */
  readonly macroSlots: ReadonlySet<number>;
  /** The functions that every rendering has. */
  readonly constants: ReadonlySet<Value>;
}

/** Most values inspected in variables, including nested ones. A template that keeps more is not resumed. */
const maxValues = 4_096;
/** Estimated size of a value in addition to its characters, in bytes. */
const valueBytes = 48;

/** Saves variables. */
function saveSlots(frame: Frame, slots: Iterable<number>): SavedSlots {
  const values: (readonly [number, Value])[] = [];
  const namespaces = new Map<Namespace, SavedNamespace>();
  for (const slot of slots) {
    const value = frame.slots[slot];
    values.push([slot, savedValue(value)]);
    if (!(value instanceof Namespace) || namespaces.has(value)) continue;
    namespaces.set(value, new Map([...value.attributes].map(([name, attribute]) => [name, savedValue(attribute)])));
  }
  return { values, namespaces };
}

function savedValue(value: Value): Value {
  const view = viewOf(value);
  return view ? new SavedView(view.offset) : value;
}

/** Restores variables in another rendering, which has defined its macros. */
function restoreSlots(
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
 * The size of variables, if another rendering can use them. Not possible for values that change during a rendering
 * (namespaces inside other values, iterators) or belong to it (loops, macros defined inside it).
 *
 * @param given input of the rendering: it does not change and is not counted
 * @returns bytes, or undefined
 */
function sizeOfSlots(
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
    if (value instanceof Markup) return isPlain(value.text);
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
