import type { Node } from "./ast.ts";
import type { LoopPlace, ResumableLoop } from "./for-loop.ts";
import { restoreSlots, type SavedSlots, type StateRules, saveSlots, sizeOfSlots } from "./loop-state.ts";
import type { MessageList } from "./message-list.ts";
import { type Execute, Frame, Runtime, runOn } from "./runtime.ts";
import { Scope, storesOf } from "./scope.ts";
import { compileFor, compileStatement } from "./statement.ts";
import type { Value } from "./values.ts";

type Variables = Readonly<Record<string, Value>>;

/** A template as a function from its variables to its text. */
export interface RenderTemplate {
  /** @throws TemplateError where Python would raise and at the renderer's bounds */
  (variables: Variables): string;
  /**
   * The same for a chat whose messages are a list that notes what is read of it, which may go on where an earlier
   * rendering has been.
   *
   * @param from a state of a rendering with the same other variables and the same first messages
   * @param shared how many of the first messages another chat is likely to have as well
   */
  readonly resume: (variables: Variables, messages: MessageList, from?: TemplateState, shared?: number) => Resumed;
}

/**
 * A rendering behind some of the messages, which comes to the same in every chat that begins with those that were read, if
 * it has as many as were looked for.
 */
export interface TemplateState {
  /** How many messages are behind it. */
  readonly messages: number;
  /** How many of the first messages a chat has to begin with, which is more when the template looks ahead. */
  readonly needed: number;
  /** How many messages there have to be. */
  readonly least: number;
  /** The loop in which it is, by its place among the template's statements; the first of its messages. */
  readonly statement: number;
  readonly offset: number;
  readonly isEmpty: boolean;
  readonly slots: SavedSlots;
  readonly chars: number;
  readonly steps: number;
}

/** A state that later renderings can go on from. */
export interface ReachedState {
  readonly state: TemplateState;
  /** What it takes, in bytes. */
  readonly sizeBytes: number;
  /** Characters of the text before it. */
  readonly length: number;
}

export interface Resumed {
  /** What follows what was written up to the state. */
  readonly text: string;
  /** The last one, and the last one within the messages that are shared. */
  readonly states: readonly ReachedState[];
}

interface Step {
  readonly run: Execute;
  readonly loop: ResumableLoop | undefined;
  /** A macro belongs to one rendering, so each defines it anew. */
  readonly isMacro: boolean;
}

/**
 * Compiles a parsed template to closures over numbered slots.
 *
 * @param globals functions that every template has; a variable of the same name comes before them
 * @throws TemplateError for a construct that Jinja2 does not have
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
