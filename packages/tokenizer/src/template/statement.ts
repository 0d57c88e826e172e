import { LoopState } from "./access.ts";
import { compileExpression, compileFiltered } from "./expression.ts";
import type { Expression, ForNode, MacroNode, Node, SetNode } from "./parse.ts";
import {
  breakLoop,
  continueLoop,
  type Evaluate,
  type Execute,
  Frame,
  runOn,
  type Scope,
  type Signal,
  targetNames,
} from "./runtime.ts";
import { lacking, unknownConstruct, valueError } from "./template-error.ts";
import {
  Callable,
  isTrue,
  iterate,
  type Keywords,
  type MessageView,
  Namespace,
  typeName,
  type Value,
  viewOf,
} from "./values.ts";
import { textOf } from "./write.ts";

/** Compiles one statement. */
export function compileStatement(node: Node, scope: Scope): Execute {
  switch (node.type) {
    case "StringLiteral":
      return compileText(node.value);
    case "If": {
      const test = compileExpression(node.test, scope);
      const body = compileBlock(node.body, scope);
      const alternate = compileBlock(node.alternate, scope);
      return (frame) => (isTrue(test(frame)) ? body(frame) : alternate(frame));
    }
    case "For": {
      const loop = compileFor(node, scope);
      return (frame) => loop(frame, undefined, undefined);
    }
    case "Set":
      return compileSet(node, scope);
    case "Macro": {
      const store = scope.store(node.name.value);
      const macro = compileMacro(node, scope);
      return (frame) => {
        store(frame, macro(frame));
        return runOn;
      };
    }
    case "CallStatement":
      throw lacking("call blocks");
    case "FilterStatement": {
      const { body, text } = compileCapture(node.body, scope);
      const filtered = compileFiltered(text, node.filter, scope);
      return (frame) => {
        const signal = body(frame);
        if (signal === runOn) frame.runtime.emit(textOf(filtered(frame)));
        return signal;
      };
    }
    case "Break":
      return () => breakLoop;
    case "Continue":
      return () => continueLoop;
    case "Program":
    case "Comment":
      throw unknownConstruct(`the statement ${node.type}`);
    default:
      return compileOutput(node, scope);
  }
}

/** Compiles the statements of a block, in order. */
function compileBlock(nodes: readonly Node[], scope: Scope): Execute {
  const statements = nodes.filter((node) => node.type !== "Comment").map((node) => compileStatement(node, scope));
  const [only] = statements;
  if (!only) return () => runOn;
  if (statements.length === 1) return only;
  return (frame) => {
    for (const statement of statements) {
      const signal = statement(frame);
      if (signal !== runOn) return signal;
    }
    return runOn;
  };
}

/** Compiles a block with a scope of its own in the same frame. Its variables start with their outer values. */
function compileInnerBlock(nodes: readonly Node[], scope: Scope): Execute {
  const copies = scope.declareStores(nodes);
  const body = compileBlock(nodes, scope);
  if (copies.length === 0) return body;
  return (frame) => {
    for (const copy of copies) copy(frame);
    return body(frame);
  };
}

function compileText(text: string): Execute {
  return (frame) => {
    frame.runtime.emit(text);
    return runOn;
  };
}

function compileOutput(node: Expression, scope: Scope): Execute {
  const value = compileExpression(node, scope);
  return (frame) => {
    const result = value(frame);
    if (typeof result === "string") frame.runtime.emit(result);
    else if (result !== undefined) frame.runtime.emit(textOf(result));
    return runOn;
  };
}

function compileSet(node: SetNode, scope: Scope): Execute {
  if (node.value) {
    const value = compileExpression(node.value, scope);
    const assign = compileTarget(node.assignee, scope);
    return (frame) => {
      assign(frame, value(frame));
      return runOn;
    };
  }
  const { body, text } = compileCapture(node.body, scope);
  let value: (frame: Frame) => Value = text;
  let target = node.assignee;
  const filters = [];
  for (; target.type === "FilterExpression"; target = target.operand) filters.unshift(target.filter);
  for (const filter of filters) value = compileFiltered(value, filter, scope);
  const assign = compileTarget(target, scope);
  return (frame) => {
    const signal = body(frame);
    if (signal === runOn) assign(frame, value(frame));
    return signal;
  };
}

/** Compiles the target of an assignment or a loop: a variable, an attribute of a namespace, or several of them. */
function compileTarget(target: Expression, scope: Scope): (frame: Frame, value: Value) => void {
  if (target.type === "Identifier") return scope.store(target.value);
  if (target.type === "TupleLiteral") {
    const parts = target.value.map((part) => compileTarget(part, scope));
    return (frame, value) => {
      const items = iterate(value);
      if (items.length !== parts.length) {
        throw valueError(`cannot unpack ${items.length} values into ${parts.length} variables`);
      }
      for (let index = 0; index < parts.length; index++) parts[index]!(frame, items[index]);
    };
  }
  if (target.type !== "MemberExpression" || target.computed || target.property.type !== "Identifier") {
    throw unknownConstruct(`an assignment to ${target.type}`);
  }
  const object = compileExpression(target.object, scope);
  const { value: name } = target.property;
  return (frame, value) => {
    const namespace = object(frame);
    if (!(namespace instanceof Namespace)) {
      throw valueError(`cannot assign attribute on non-namespace object '${typeName(namespace)}'`);
    }
    namespace.attributes.set(name, value);
  };
}

/** A block whose output is captured: `body` runs it, then `text` returns its output. */
function compileCapture(nodes: readonly Node[], scope: Scope): { body: Execute; text: (frame: Frame) => string } {
  const inner = scope.block();
  const slot = inner.layout.slotCount++;
  const run = compileInnerBlock(nodes, inner);
  return {
    body: (frame) => {
      let signal: Signal = runOn;
      frame.slots[slot] = frame.runtime.capture(() => {
        signal = run(frame);
      });
      return signal;
    },
    text: (frame) => frame.slots[slot] as string,
  };
}

interface Binding {
  readonly name: string;
  readonly slot: number;
  readonly otherwise: Evaluate | undefined;
}

/** Compiles a macro: it sees the variables around its definition, not around its call. */
function compileMacro(
  { name: { value: macro }, args: parameters, body: nodes }: MacroNode,
  scope: Scope,
): (frame: Frame) => Callable {
  const inner = scope.macro();
  const names = parameters.map((parameter) =>
    parameter.type === "Identifier" ? parameter.value : parameter.key.value,
  );
  const slots = names.map((name) => inner.declare(name));
  const bindings = parameters.map(
    (parameter, index): Binding => ({
      name: names[index]!,
      slot: slots[index]!,
      otherwise: parameter.type === "Identifier" ? undefined : compileExpression(parameter.value, inner),
    }),
  );
  const body = compileInnerBlock(nodes, inner);
  return (outer) =>
    new Callable(macro, (args, keywords) =>
      outer.runtime.call(() => {
        const frame = new Frame(inner.layout.slotCount, outer.runtime, outer);
        bindArguments(macro, frame, { bindings, args, keywords });
        body(frame);
      }),
    );
}

interface Given {
  readonly bindings: readonly Binding[];
  readonly args: readonly Value[];
  readonly keywords: Keywords;
}

function bindArguments(macro: string, frame: Frame, { bindings, args, keywords }: Given): void {
  const rest = new Map(keywords);
  const defaults: Binding[] = [];
  for (const [index, binding] of bindings.entries()) {
    if (index < args.length) frame.slots[binding.slot] = args[index];
    else if (rest.has(binding.name)) frame.slots[binding.slot] = rest.get(binding.name);
    else if (binding.otherwise) defaults.push(binding);
    if (index >= args.length) rest.delete(binding.name);
  }
  if (rest.size > 0) throw valueError(`macro '${macro}' takes no keyword argument '${[...rest.keys()][0]}'`);
  if (args.length > bindings.length) {
    throw valueError(`macro '${macro}' takes not more than ${bindings.length} argument(s)`);
  }
  for (const { slot, otherwise } of defaults) frame.slots[slot] = otherwise!(frame);
}

/** The position of a loop over messages between two turns. */
export interface LoopPlace {
  readonly view: MessageView;
  /** Index of the next turn. */
  readonly index: number;
  /** Whether no turn has counted so far. */
  readonly isEmpty: boolean;
}

/** A loop that can start at a position of an earlier rendering of the same template and report its own position. */
export type ResumableLoop = (
  frame: Frame,
  from: LoopPlace | undefined,
  onTurn: ((place: LoopPlace) => void) | undefined,
) => Signal;

interface LoopParts {
  readonly assign: (frame: Frame, value: Value) => void;
  readonly test: Evaluate | undefined;
  readonly body: Execute;
  readonly otherwise: Execute;
  readonly loopSlot: number;
}

/** Compiles `for`: each turn starts with fresh variables, which are invisible outside. */
export function compileFor(node: ForNode, scope: Scope): ResumableLoop {
  const [iterable, test] =
    node.iterable.type === "SelectExpression" ? [node.iterable.lhs, node.iterable.test] : [node.iterable, undefined];
  const items = compileExpression(iterable, scope);
  const inner = scope.block();
  for (const name of targetNames(node.loopvar)) inner.declare(name);
  const assign = compileTarget(node.loopvar, inner);
  // The test does not see the variable `loop`, which is declared after it.
  const compiledTest = test && compileExpression(test, inner);
  const loopSlot = inner.declare("loop");
  const parts: LoopParts = {
    assign,
    test: compiledTest,
    body: compileInnerBlock(node.body, inner),
    otherwise: compileBlock(node.defaultBlock, scope.block()),
    loopSlot,
  };
  return (frame, from, onTurn) => runLoop(frame, from ? from.view.items : items(frame), parts, { from, onTurn });
}

interface LoopRun {
  readonly from: LoopPlace | undefined;
  readonly onTurn: ((place: LoopPlace) => void) | undefined;
}

function runLoop(frame: Frame, value: Value, parts: LoopParts, { from, onTurn }: LoopRun): Signal {
  const { assign, test, body, loopSlot } = parts;
  let items = iterate(value);
  if (test) {
    items = items.filter((item) => {
      frame.runtime.step();
      assign(frame, item);
      return isTrue(test(frame));
    });
  }
  // A turn depends on whether there is one more message, not on how many there are.
  const view = viewOf(items);
  const length = view ? Number.POSITIVE_INFINITY : items.length;
  const loop = new LoopState(items);
  let isEmpty = from?.isEmpty ?? true;
  for (let index = from?.index ?? 0; index < length && view?.has(index) !== false; index++) {
    frame.runtime.step();
    loop.index0 = index;
    frame.slots[loopSlot] = loop;
    assign(frame, items[index]);
    const signal = body(frame);
    if (signal === breakLoop) break;
    // As in Jinja2, a turn that ends with `continue` does not count.
    if (signal === runOn) isEmpty = false;
    if (view && onTurn) onTurn({ view, index: index + 1, isEmpty });
  }
  return isEmpty ? parts.otherwise(frame) : runOn;
}
