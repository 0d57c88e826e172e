import { getAttribute, getItem, getSlice } from "./access.ts";
import type { CallNode, Expression, FilterNode, IdentifierNode, MemberNode, TestNode } from "./ast.ts";
import { callValue, compileArguments, compileMethodCall } from "./call.ts";
import { isDictMethod } from "./dict-methods.ts";
import type { Filter } from "./filter.ts";
import { filterNamed } from "./filters.ts";
import { sign } from "./numbers.ts";
import { operatorNamed } from "./operators.ts";
import type { Evaluate } from "./runtime.ts";
import type { Scope } from "./scope.ts";
import { unknownConstruct, valueError } from "./template-error.ts";
import { testNamed } from "./tests.ts";
import { testOfFilterName } from "./tokens.ts";
import { checkHashable, dictKey, floatValue, isTrue, noKeywords, PyTuple, type Value } from "./values.ts";

const constants: Readonly<Record<string, Value>> = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
};

/**
 * Compiles an expression to a closure.
 *
 * @throws TemplateError for a construct that Jinja2 does not have there
 */
export function compileExpression(node: Expression, scope: Scope): Evaluate {
  switch (node.type) {
    case "StringLiteral":
    case "IntegerLiteral":
      return constant(node.value);
    case "FloatLiteral":
      return constant(floatValue(node.value));
    case "Identifier":
      return Object.hasOwn(constants, node.value) ? constant(constants[node.value]) : scope.load(node.value);
    case "ArrayLiteral":
    case "TupleLiteral":
    case "ObjectLiteral":
      return compileContainer(node, scope);
    case "MemberExpression":
      return compileMember(node, scope);
    case "CallExpression":
      return compileCall(node, scope);
    case "FilterExpression":
      return compileFilter(node, scope);
    case "TestExpression":
      return compileTest(node, scope);
    case "BinaryExpression": {
      const operator = operatorNamed(node.operator.value);
      if (!operator) throw unknownConstruct(`the operator ${node.operator.value}`);
      return operator(compileExpression(node.left, scope), compileExpression(node.right, scope));
    }
    case "UnaryExpression":
      return compileUnary(node.operator.value, compileExpression(node.argument, scope));
    case "Ternary":
      return compileChoice(
        compileExpression(node.condition, scope),
        compileExpression(node.trueExpr, scope),
        compileExpression(node.falseExpr, scope),
      );
    case "SelectExpression":
      return compileChoice(
        compileExpression(node.test, scope),
        compileExpression(node.lhs, scope),
        constant(undefined),
      );
    default:
      throw unknownConstruct(`the expression ${node.type}`);
  }
}

function constant(value: Value): Evaluate {
  return () => value;
}

function compileChoice(condition: Evaluate, yes: Evaluate, no: Evaluate): Evaluate {
  return (frame) => (isTrue(condition(frame)) ? yes(frame) : no(frame));
}

function compileUnary(operator: string, argument: Evaluate): Evaluate {
  if (operator === "not") return (frame) => !isTrue(argument(frame));
  if (operator === "-" || operator === "+") return (frame) => sign(operator, argument(frame));
  throw unknownConstruct(`the operator ${operator}`);
}

function compileContainer(
  node: Extract<Expression, { type: "ArrayLiteral" | "TupleLiteral" | "ObjectLiteral" }>,
  scope: Scope,
): Evaluate {
  if (node.type === "ObjectLiteral") {
    const entries = [...node.value].map(
      ([key, value]) => [compileExpression(key, scope), compileExpression(value, scope)] as const,
    );
    return (frame) => new Map(entries.map(([key, value]) => [hashableKey(key(frame)), value(frame)]));
  }
  const items = node.value.map((item) => compileExpression(item, scope));
  if (node.type === "TupleLiteral") return (frame) => PyTuple.ofItems(items.map((item) => item(frame)));
  return (frame) => items.map((item) => item(frame));
}

function hashableKey(key: Value): Value {
  checkHashable(key);
  return dictKey(key);
}

function compileMember(node: MemberNode, scope: Scope): Evaluate {
  const object = compileExpression(node.object, scope);
  const { property, computed } = node;
  if (!computed && property.type === "Identifier") return compileAttribute(object, property.value);
  if (property.type === "SliceExpression") {
    const bound = (part: Expression | undefined): Evaluate => (part ? compileExpression(part, scope) : constant(null));
    const [start, stop, step] = [bound(property.start), bound(property.stop), bound(property.step)];
    return (frame) => getSlice(object(frame), { start: start(frame), stop: stop(frame), step: step(frame) });
  }
  if (property.type === "StringLiteral") return compileKey(object, property.value);
  const key = compileExpression(property, scope);
  return (frame) => getItem(object(frame), key(frame));
}

/** Messages come as plain objects, whose keys are read without further ado. */
function compileAttribute(object: Evaluate, name: string): Evaluate {
  if (isDictMethod(name)) return (frame) => getAttribute(object(frame), name);
  return (frame) => {
    const value = object(frame);
    return isPlainWith(value, name) ? value[name] : getAttribute(value, name);
  };
}

function compileKey(object: Evaluate, key: string): Evaluate {
  return (frame) => {
    const value = object(frame);
    return isPlainWith(value, key) ? value[key] : getItem(value, key);
  };
}

function isPlainWith(value: Value, key: string): value is Record<string, Value> {
  return (
    typeof value === "object" &&
    value !== null &&
    Object.getPrototypeOf(value) === Object.prototype &&
    Object.hasOwn(value, key)
  );
}

function compileCall(node: CallNode, scope: Scope): Evaluate {
  const compiled = compileArguments(node.args, (argument) => compileExpression(argument, scope));
  const { callee } = node;
  if (callee.type === "MemberExpression" && !callee.computed && callee.property.type === "Identifier") {
    return compileMethodCall(compileExpression(callee.object, scope), callee.property.value, compiled);
  }
  const what = callee.type === "Identifier" ? callee.value : "the called value";
  const value = compileExpression(callee, scope);
  return (frame) => callValue(value(frame), compiled.args(frame), compiled.keywords(frame), what);
}

function compileFilter(node: FilterNode, scope: Scope): Evaluate {
  return compileFiltered(compileExpression(node.operand, scope), node.filter, scope);
}

/**
 * Compiles a filter over any value.
 *
 * @throws TemplateError for a filter without a name
 */
export function compileFiltered(operand: Evaluate, filter: IdentifierNode | CallNode, scope: Scope): Evaluate {
  const isCall = filter.type === "CallExpression";
  const nameNode = isCall ? filter.callee : filter;
  if (nameNode.type !== "Identifier") throw unknownConstruct("a filter without a name");
  const apply = filterOrTest(nameNode.value);
  if (!isCall) return (frame) => apply(operand(frame), [], noKeywords);
  const { args, keywords } = compileArguments(filter.args, (argument) => compileExpression(argument, scope));
  return (frame) => apply(operand(frame), args(frame), keywords(frame));
}

function filterOrTest(name: string): Filter {
  const asTest = testOfFilterName(name);
  if (!asTest) return filterNamed(name) ?? (() => unknownName("filter", name));
  const test = testNamed(asTest.name);
  const { negate } = asTest;
  if (!test) return () => unknownName("test", asTest.name);
  return (value, args, keywords) => test(value, args, keywords) !== negate;
}

/** As in Jinja2, a template may name what does not exist in a branch that is never taken. */
function unknownName(kind: "filter" | "test", name: string): never {
  throw valueError(`No ${kind} named '${name}'.`);
}

function compileTest(node: TestNode, scope: Scope): Evaluate {
  const operand = compileExpression(node.operand, scope);
  const name = node.test.value;
  if (name === "defined") return (frame) => (operand(frame) !== undefined) !== node.negate;
  const test = testNamed(name);
  if (!test) return () => unknownName("test", name);
  return (frame) => test(operand(frame), [], noKeywords) !== node.negate;
}
