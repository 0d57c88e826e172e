import type { Node } from "./ast.ts";
import { Frame, Runtime } from "./runtime.ts";
import { Scope } from "./scope.ts";
import { compileInnerBlock } from "./statement.ts";
import type { Value } from "./values.ts";

/** A template as a function from its variables to its text. */
export type RenderTemplate = (variables: Readonly<Record<string, Value>>) => string;

/**
 * Compiles a parsed template to closures over numbered slots.
 *
 * @param globals functions that every template has; a variable of the same name comes before them
 * @returns the function, which throws a TemplateError where Python would raise and at the renderer's bounds
 * @throws TemplateError for a construct that Jinja2 does not have
 */
export function compileTemplate(program: Node, globals: Readonly<Record<string, Value>>): RenderTemplate {
  const scope = Scope.root();
  const body = compileInnerBlock(program.type === "Program" ? program.body : [program], scope);
  return (variables) => {
    const runtime = new Runtime(variables, globals);
    const frame = new Frame(scope.layout.slotCount, runtime);
    for (const { name, slot } of scope.resolved) frame.slots[slot] = runtime.resolve(name);
    body(frame);
    return runtime.text();
  };
}
