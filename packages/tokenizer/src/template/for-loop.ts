import type { Expression, ForNode, Node } from "./ast.ts";
import { compileExpression } from "./expression.ts";
import { LoopState } from "./loop.ts";
import { type MessageView, viewOf } from "./message-list.ts";
import { breakLoop, type Evaluate, type Execute, Frame, runOn, type Signal } from "./runtime.ts";
import { type Scope, targetNames } from "./scope.ts";
import { isRecursiveMark } from "./tokens.ts";
import { isTrue, iterate, type Value } from "./values.ts";

/** The parts of the statement compiler that a loop needs. */
export interface BlockCompiler {
  readonly block: (nodes: readonly Node[], scope: Scope) => Execute;
  readonly innerBlock: (nodes: readonly Node[], scope: Scope) => Execute;
  readonly target: (target: Expression, scope: Scope) => (frame: Frame, value: Value) => void;
}

interface LoopParts {
  readonly assign: (frame: Frame, value: Value) => void;
  readonly test: Evaluate | undefined;
  readonly body: Execute;
  readonly otherwise: Execute;
  readonly loopSlot: number;
}

/** Where a loop over messages stands between two turns. */
export interface LoopPlace {
  readonly view: MessageView;
  /** The turn that comes next. */
  readonly index: number;
  /** Whether no turn so far counted as one. */
  readonly isEmpty: boolean;
}

/** A loop that may start in its midst, where another rendering of the same template has been, and tell where it stands. */
export type ResumableLoop = (
  frame: Frame,
  from: LoopPlace | undefined,
  onTurn: ((place: LoopPlace) => void) | undefined,
) => Signal;

/** Compiles `for`: each turn starts with fresh variables, and what it sets is not seen outside. */
export function compileLoop(node: ForNode, scope: Scope, compiler: BlockCompiler): ResumableLoop {
  const { iterable, test, recursive } = readIterable(node.iterable);
  const items = compileExpression(iterable, scope);
  const inner = recursive ? scope.frame({ takesSpecials: false }) : scope.block();
  for (const name of targetNames(node.loopvar)) inner.declare(name);
  const assign = compiler.target(node.loopvar, inner);
  // The test does not see the variable `loop`, which is declared after it.
  const compiledTest = test && compileExpression(test, inner);
  const loopSlot = inner.declare("loop");
  const parts: LoopParts = {
    assign,
    test: compiledTest,
    body: compiler.innerBlock(node.body, inner),
    otherwise: compiler.block(node.defaultBlock, recursive ? inner.block() : scope.block()),
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
  // Of messages, a turn tells that there is one more, and not how many there are.
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
    // As in Jinja2, a turn that `continue` ends does not count as one.
    if (signal === runOn) isEmpty = false;
    if (view && onTurn && !loop.lastChecked) onTurn({ view, index: index + 1, isEmpty });
  }
  return isEmpty ? parts.otherwise(frame) : runOn;
}

/** Takes `y if test recursive` apart. */
function readIterable(node: Expression): { iterable: Expression; test: Expression | undefined; recursive: boolean } {
  const [whole, recursive] = unmark(node);
  if (whole.type !== "SelectExpression") return { iterable: whole, test: undefined, recursive };
  const [test, testIsMarked] = unmark(whole.test);
  return { iterable: whole.lhs, test, recursive: recursive || testIsMarked };
}

/** The mark is the last filter of the last operand, so it may sit on the right of an operator. */
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
