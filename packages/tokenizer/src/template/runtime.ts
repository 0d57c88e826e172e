import type { Expression, Node } from "./parse.ts";
import { lacking, limitError, maxCallDepth, maxSteps, maxTextChars } from "./template-error.ts";
import type { Value } from "./values.ts";

/** The output of one rendering, and how much of its bounds is used. */
export class Runtime {
  private readonly variables: Readonly<Record<string, Value>>;
  private readonly globals: Readonly<Record<string, Value>>;
  private out: string[] = [];
  /** How much of the bounds is used. */
  chars = 0;
  steps = 0;
  private depth = 0;

  constructor(variables: Readonly<Record<string, Value>>, globals: Readonly<Record<string, Value>>) {
    this.variables = variables;
    this.globals = globals;
  }

  /** A name that the template does not set: a variable of the request, else a Jinja2 global, else undefined. */
  resolve(name: string): Value {
    if (Object.hasOwn(this.variables, name)) return this.variables[name];
    return Object.hasOwn(this.globals, name) ? this.globals[name] : undefined;
  }

  /** Writes text. Pieces are joined once at the end, so that no rope is flattened later. */
  emit(text: string): void {
    this.chars += text.length;
    if (this.chars > maxTextChars)
      throw limitError(`the rendered text exceeds the limit of ${maxTextChars} characters`);
    this.out.push(text);
  }

  /** Runs a part of the template and returns its output instead of writing it. */
  capture(run: () => void): string {
    const outer = this.out;
    this.out = [];
    run();
    const text = this.text();
    this.out = outer;
    return text;
  }

  /** The text written so far. */
  text(): string {
    return this.out.join("");
  }

  /** The number of pieces written so far. */
  get pieces(): number {
    return this.out.length;
  }

  /** Characters of the first `pieces`. */
  lengthOf(pieces: number): number {
    let length = 0;
    for (let index = 0; index < pieces; index++) length += this.out[index]!.length;
    return length;
  }

  /** Counts one turn of a loop. */
  step(): void {
    if (++this.steps > maxSteps) throw limitError(`the template runs more than ${maxSteps} steps`);
  }

  /** Runs a macro and returns its output. */
  call(run: () => void): string {
    this.step();
    if (++this.depth > maxCallDepth) throw limitError(`macros nest deeper than ${maxCallDepth}`);
    const text = this.capture(run);
    this.depth--;
    return text;
  }
}

/** The variables of one run of the template or of a macro. */
export class Frame {
  readonly slots: Value[];
  /** The enclosing frame, in which a macro was defined. */
  readonly outer: Frame | undefined;
  readonly runtime: Runtime;

  constructor(slotCount: number, runtime: Runtime, outer?: Frame) {
    this.slots = new Array<Value>(slotCount).fill(undefined);
    this.runtime = runtime;
    this.outer = outer;
  }
}

/** How a statement ends: normally, or leaving the turn (`continue`) or the loop (`break`). */
export type Signal = 0 | 1 | 2;
export const runOn = 0;
export const breakLoop = 1;
export const continueLoop = 2;

export type Evaluate = (frame: Frame) => Value;
export type Execute = (frame: Frame) => Signal;

/** Shared by all blocks of one frame: the template or a macro. */
interface FrameLayout {
  slotCount: number;
}

/** Names that a macro has in Jinja2 without declaring them. */
const specialNames = ["caller", "varargs", "kwargs"];

/**
 * The names of a block at compile time, each with its slot in a frame. Jinja2's blocks (loops, macros, set and filter
 * blocks) have their own scopes, which see outer names and hide inner ones; `if` has none.
 */
export class Scope {
  readonly layout: FrameLayout;
  private readonly slots = new Map<string, number>();
  private readonly outer: Scope | undefined;
  /** Only in the root scope: names that the template reads and the caller provides. */
  readonly resolved: { readonly name: string; readonly slot: number }[] = [];

  private constructor(layout: FrameLayout, outer: Scope | undefined) {
    this.layout = layout;
    this.outer = outer;
  }

  static root(): Scope {
    return new Scope({ slotCount: 0 }, undefined);
  }

  /** An inner block in the same frame. */
  block(): Scope {
    return new Scope(this.layout, this);
  }

  /** A macro, which runs in a frame of its own. */
  macro(): Scope {
    return new Scope({ slotCount: 0 }, this);
  }

  /** The slot of a name of this very block, created if needed. */
  declare(name: string): number {
    const known = this.slots.get(name);
    if (known !== undefined) return known;
    const slot = this.layout.slotCount++;
    this.slots.set(name, slot);
    return slot;
  }

  /** The slots of this very block's names, by name. */
  get ownSlots(): ReadonlyMap<string, number> {
    return this.slots;
  }

  /**
   * Declares the names that statements set in this block. Before the block runs, each has its outer value; the returned
   * functions copy it.
   */
  declareStores(statements: readonly Node[]): ((frame: Frame) => void)[] {
    const copies: ((frame: Frame) => void)[] = [];
    for (const name of new Set(storesOf(statements))) {
      if (this.slots.has(name)) continue;
      const load = this.outer ? this.loadFrom(this.outer, name) : undefined;
      const slot = this.declare(name);
      if (load) copies.push(copyTo(slot, load));
      else this.resolved.push({ name, slot });
    }
    return copies;
  }

  private loadFrom(outer: Scope, name: string): Evaluate {
    return outer.layout === this.layout ? outer.load(name) : atDepth(1, outer.load(name));
  }

  /**
   * Reads a variable.
   *
   * @throws TemplateError when it is one that every macro has
   */
  load(name: string): Evaluate {
    let depth = 0;
    for (let scope: Scope = this; ; scope = scope.outer) {
      const slot = scope.slots.get(name);
      if (slot !== undefined) return atDepth(depth, (frame) => frame.slots[slot]);
      if (!scope.outer) return atDepth(depth, scope.resolve(name));
      if (scope.outer.layout === scope.layout) continue;
      if (specialNames.includes(name)) throw lacking(`the variable '${name}' of macros`);
      depth++;
    }
  }

  private resolve(name: string): Evaluate {
    const slot = this.declare(name);
    this.resolved.push({ name, slot });
    return (frame) => frame.slots[slot];
  }

  /** Writes a variable of this block. */
  store(name: string): (frame: Frame, value: Value) => void {
    const slot = this.declare(name);
    return (frame, value) => {
      frame.slots[slot] = value;
    };
  }
}

function copyTo(slot: number, load: Evaluate): (frame: Frame) => void {
  return (frame) => {
    frame.slots[slot] = load(frame);
  };
}

function atDepth(depth: number, load: Evaluate): Evaluate {
  if (depth === 0) return load;
  if (depth === 1) return (frame) => load(frame.outer!);
  return (frame) => {
    let outer = frame;
    for (let level = 0; level < depth; level++) outer = outer.outer!;
    return load(outer);
  };
}

/**
 * The names that statements set in their own block, each as often as it is set. Names set in inner loops, macros and
 * set blocks stay inside.
 */
export function storesOf(statements: readonly Node[]): readonly string[] {
  return statements.flatMap((node) => {
    if (node.type === "Set") return targetNames(node.assignee);
    if (node.type === "Macro") return [node.name.value];
    return node.type === "If" ? storesOf([...node.body, ...node.alternate]) : [];
  });
}

/** The variables that an assignment sets; attributes of a namespace do not count. */
export function targetNames(target: Expression): string[] {
  if (target.type === "Identifier") return [target.value];
  if (target.type === "TupleLiteral") return target.value.flatMap(targetNames);
  return target.type === "FilterExpression" ? targetNames(target.operand) : [];
}
