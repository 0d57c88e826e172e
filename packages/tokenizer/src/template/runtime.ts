import { maxCallDepth, maxSteps, maxTextChars } from "./limits.ts";
import { limitError } from "./template-error.ts";
import type { Value } from "./values.ts";

/** What one rendering writes and how much of its bounds it has used. */
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

  /** A name that the template does not set: a variable of the request, else one of Jinja2's globals, else undefined. */
  resolve(name: string): Value {
    if (Object.hasOwn(this.variables, name)) return this.variables[name];
    return Object.hasOwn(this.globals, name) ? this.globals[name] : undefined;
  }

  /** Writes text. Pieces are joined once at the end, so that nobody has to flatten a rope later. */
  emit(text: string): void {
    this.chars += text.length;
    if (this.chars > maxTextChars) throw limitError(`the rendered text passes the bound of ${maxTextChars} characters`);
    this.out.push(text);
  }

  /** Runs a part of the template and gives what it wrote instead of writing it. */
  capture(run: () => void): string {
    const outer = this.out;
    this.out = [];
    run();
    const text = this.text();
    this.out = outer;
    return text;
  }

  /** What was written so far. */
  text(): string {
    return this.out.join("");
  }

  /** How many pieces were written so far. */
  get pieces(): number {
    return this.out.length;
  }

  /** Characters of the first of them. */
  lengthOf(pieces: number): number {
    let length = 0;
    for (let index = 0; index < pieces; index++) length += this.out[index]!.length;
    return length;
  }

  /** Counts one turn of a loop. */
  step(): void {
    if (++this.steps > maxSteps) throw limitError(`the template runs more than ${maxSteps} steps`);
  }

  /** Runs a macro or a recursive loop and gives what it wrote. */
  call(run: () => void): string {
    this.step();
    if (++this.depth > maxCallDepth) throw limitError(`macros nest deeper than ${maxCallDepth}`);
    const text = this.capture(run);
    this.depth--;
    return text;
  }
}

/** The variables of one run of the template, of a macro or of a level of a recursive loop. */
export class Frame {
  readonly slots: Value[];
  /** The frame around, in which a macro was defined. */
  readonly outer: Frame | undefined;
  readonly runtime: Runtime;

  constructor(slotCount: number, runtime: Runtime, outer?: Frame) {
    this.slots = new Array<Value>(slotCount).fill(undefined);
    this.runtime = runtime;
    this.outer = outer;
  }
}

/** How a statement ends: run on, or leave the turn (`continue`) or the loop (`break`). */
export type Signal = 0 | 1 | 2;
export const runOn = 0;
export const breakLoop = 1;
export const continueLoop = 2;

export type Evaluate = (frame: Frame) => Value;
export type Execute = (frame: Frame) => Signal;
