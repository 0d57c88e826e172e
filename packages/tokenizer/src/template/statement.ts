import { LoopState } from "./access.ts";
import { callValue, compileArguments, compileExpression, compileFiltered } from "./expression.ts";
import {
  type CallBlockNode,
  type Expression,
  type ForNode,
  isRecursiveMark,
  type Node,
  type Parameter,
  type SetNode,
} from "./parse.ts";
import {
  breakLoop,
  continueLoop,
  type Evaluate,
  type Execute,
  Frame,
  runOn,
  type Scope,
  type Signal,
  type SpecialName,
  targetNames,
} from "./runtime.ts";
import { unknownConstruct, valueError } from "./template-error.ts";
import {
  Callable,
  isTrue,
  iterate,
  type Keywords,
  type MessageView,
  Namespace,
  PyTuple,
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
      const macro = compileMacro({ name: node.name.value, parameters: node.args, body: node.body }, scope);
      return (frame) => {
        store(frame, macro(frame));
        return runOn;
      };
    }
    case "CallStatement":
      return compileCallBlock(node, scope);
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

function compileCallBlock(node: CallBlockNode, scope: Scope): Execute {
  const { args, keywords } = compileArguments(node.call.args, (argument) => compileExpression(argument, scope));
  const callee = compileExpression(node.call.callee, scope);
  const caller = compileMacro({ name: "caller", parameters: node.callerArgs ?? [], body: node.body }, scope);
  return (frame) => {
    const given = new Map(keywords(frame)).set("caller", caller(frame));
    frame.runtime.emit(textOf(callValue(callee(frame), args(frame), given, "the called macro")));
    return runOn;
  };
}

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

/** Compiles a macro, or the body of a call block: it sees the variables around its definition, not around its call. */
function compileMacro(source: MacroSource, scope: Scope): (frame: Frame) => Callable {
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
  const { iterable, test, recursive } = readIterable(node.iterable);
  const items = compileExpression(iterable, scope);
  const inner = recursive ? scope.frame({ takesSpecials: false }) : scope.block();
  for (const name of targetNames(node.loopvar)) inner.declare(name);
  const assign = compileTarget(node.loopvar, inner);
  // The test does not see the variable `loop`, which is declared after it.
  const compiledTest = test && compileExpression(test, inner);
  const loopSlot = inner.declare("loop");
  const parts: LoopParts = {
    assign,
    test: compiledTest,
    body: compileInnerBlock(node.body, inner),
    otherwise: compileBlock(node.defaultBlock, recursive ? inner.block() : scope.block()),
    loopSlot,
  };
  if (!recursive) {
    return (frame, from, onTurn) => {
      const value = from ? from.view.items : items(frame);
      return runLoop(frame, value, parts, { depth0: 0, from, onTurn });
    };
  }
  const run = (outer: Frame, value: Value, depth0: number): string =>
    outer.runtime.call(() => {
      const frame = new Frame(inner.layout.slotCount, outer.runtime, outer);
      runLoop(frame, value, parts, { depth0, recurse: (children) => run(outer, children, depth0 + 1) });
    });
  return (frame) => {
    frame.runtime.emit(run(frame, items(frame), 0));
    return runOn;
  };
}

interface LoopRun {
  readonly depth0: number;
  readonly recurse?: (items: Value) => string;
  readonly from?: LoopPlace | undefined;
  readonly onTurn?: ((place: LoopPlace) => void) | undefined;
}

function runLoop(frame: Frame, value: Value, parts: LoopParts, run: LoopRun): Signal {
  const { assign, test, body, loopSlot } = parts;
  const { depth0, recurse, from, onTurn } = run;
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
  const loop = new LoopState(items, depth0, recurse);
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
    if (view && onTurn && !loop.lastChecked) onTurn({ view, index: index + 1, isEmpty });
  }
  return isEmpty ? parts.otherwise(frame) : runOn;
}

/** Separates the parts of `y if test recursive`. */
function readIterable(node: Expression): { iterable: Expression; test: Expression | undefined; recursive: boolean } {
  const [whole, recursive] = unmark(node);
  if (whole.type !== "SelectExpression") return { iterable: whole, test: undefined, recursive };
  const [test, testIsMarked] = unmark(whole.test);
  return { iterable: whole.lhs, test, recursive: recursive || testIsMarked };
}

/** The mark is the last filter of the last operand, so it may be on the right of an operator. */
function unmark(node: Expression): [Expression, boolean] {
  if (node.type === "FilterExpression" && node.filter.type === "Identifier" && isRecursiveMark(node.filter.value)) {
    return [node.operand, true];
  }
  if (node.type === "BinaryExpression") {
    const [right, found] = unmark(node.right);
    return [found ? { ...node, right } : node, found];
  }
  if (node.type === "UnaryExpression") {
    const [argument, found] = unmark(node.argument);
    return [found ? { ...node, argument } : node, found];
  }
  return [node, false];
}
