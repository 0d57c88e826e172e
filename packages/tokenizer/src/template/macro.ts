import type { Node, Parameter } from "./ast.ts";
import { compileExpression } from "./expression.ts";
import { type Evaluate, Frame } from "./runtime.ts";
import type { Scope, SpecialName } from "./scope.ts";
import { compileInnerBlock } from "./statement.ts";
import { valueError } from "./template-error.ts";
import { Callable, type Keywords, PyTuple, type Value } from "./values.ts";

interface MacroSource {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly body: readonly Node[];
}

interface Binding {
  readonly name: string;
  readonly slot: number;
  readonly otherwise: Evaluate | undefined;
}

/** Compiles a macro, or the body of a call block: it reads the variables around its definition, not around its call. */
export function compileMacro(source: MacroSource, scope: Scope): (frame: Frame) => Callable {
  const inner = scope.frame({ takesSpecials: true });
  const names = source.parameters.map((parameter) =>
    parameter.type === "Identifier" ? parameter.value : parameter.key.value,
  );
  const slots = names.map((name) => inner.declare(name));
  const bindings = source.parameters.map(
    (parameter, index): Binding => ({
      name: names[index]!,
      slot: slots[index]!,
      otherwise: parameter.type === "Identifier" ? undefined : compileExpression(parameter.value, inner),
    }),
  );
  const body = compileInnerBlock(source.body, inner);
  const special = (name: SpecialName): number | undefined => (names.includes(name) ? undefined : inner.own(name));
  const specials = { caller: special("caller"), varargs: special("varargs"), kwargs: special("kwargs") };
  return (outer) =>
    new Callable(source.name, (args, keywords) =>
      outer.runtime.call(() => {
        const frame = new Frame(inner.layout.slotCount, outer.runtime, outer);
        bindArguments(source.name, frame, { bindings, specials, args, keywords });
        body(frame);
      }),
    );
}

interface Given {
  readonly bindings: readonly Binding[];
  readonly specials: Readonly<Record<SpecialName, number | undefined>>;
  readonly args: readonly Value[];
  readonly keywords: Keywords;
}

function bindArguments(macro: string, frame: Frame, { bindings, specials, args, keywords }: Given): void {
  const rest = new Map(keywords);
  const defaults: Binding[] = [];
  for (const [index, binding] of bindings.entries()) {
    if (index < args.length) frame.slots[binding.slot] = args[index];
    else if (rest.has(binding.name)) frame.slots[binding.slot] = rest.get(binding.name);
    else if (binding.otherwise) defaults.push(binding);
    if (index >= args.length) rest.delete(binding.name);
  }
  if (specials.caller !== undefined) {
    frame.slots[specials.caller] = rest.get("caller");
    rest.delete("caller");
  }
  if (specials.kwargs !== undefined) frame.slots[specials.kwargs] = rest;
  else if (rest.size > 0) throw valueError(`macro '${macro}' takes no keyword argument '${[...rest.keys()][0]}'`);
  if (specials.varargs !== undefined) frame.slots[specials.varargs] = PyTuple.ofItems(args.slice(bindings.length));
  else if (args.length > bindings.length) {
    throw valueError(`macro '${macro}' takes not more than ${bindings.length} argument(s)`);
  }
  for (const { slot, otherwise } of defaults) frame.slots[slot] = otherwise!(frame);
}
