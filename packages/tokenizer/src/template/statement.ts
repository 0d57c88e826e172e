import type { CallBlockNode, Expression, ForNode, Node, SetNode } from "./ast.ts";
import { callValue, compileArguments } from "./call.ts";
import { compileExpression, compileFiltered } from "./expression.ts";
import { compileLoop, type ResumableLoop } from "./for-loop.ts";
import { compileMacro } from "./macro.ts";
import { breakLoop, continueLoop, type Execute, type Frame, runOn, type Signal } from "./runtime.ts";
import type { Scope } from "./scope.ts";
import { unknownConstruct, valueError } from "./template-error.ts";
import { isTrue, iterate, Namespace, typeName, type Value } from "./values.ts";
import { textOf } from "./write.ts";

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

/**
 * Compiles a block with a scope of its own in the same frame. Its variables start as what they are outside.
 */
export function compileInnerBlock(nodes: readonly Node[], scope: Scope): Execute {
  const copies = scope.declareStores(nodes);
  const body = compileBlock(nodes, scope);
  if (copies.length === 0) return body;
  return (frame) => {
    for (const copy of copies) copy(frame);
    return body(frame);
  };
}

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

/** Compiles a loop. */
export function compileFor(node: ForNode, scope: Scope): ResumableLoop {
  return compileLoop(node, scope, {
    block: compileBlock,
    innerBlock: compileInnerBlock,
    target: compileTarget,
  });
}

/** A block whose output is kept: `body` runs it, then `text` gives what it wrote. */
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

/** Compiles what an assignment or a loop writes to: a variable, an attribute of a namespace, or several of them. */
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
