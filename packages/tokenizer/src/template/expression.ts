import { callDictMethod, getAttribute, getItem, getSlice, isDictMethod } from "./access.ts";
import { type Filter, filterNamed } from "./filters.ts";
import { type Arithmetic, arithmetic, sign } from "./numbers.ts";
import {
  type CallNode,
  type Expression,
  type FilterNode,
  type IdentifierNode,
  type MemberNode,
  type TestNode,
  testOfFilterName,
} from "./parse.ts";
import type { Evaluate, Frame, Scope } from "./runtime.ts";
import { formatPercent, stringMethod } from "./string-methods.ts";
import { lacking, maxListLength, maxTextChars, TemplateError, unknownConstruct, valueError } from "./template-error.ts";
import { testNamed } from "./tests.ts";
import { escapeHtml } from "./text.ts";
import {
  Callable,
  checkHashable,
  checkLength,
  compareValues,
  contains,
  dictEntries,
  dictKey,
  equals,
  floatValue,
  isDict,
  isInt,
  isTrue,
  iterate,
  type Keywords,
  Markup,
  noKeywords,
  PyTuple,
  typeName,
  type Value,
} from "./values.ts";
import { textOf } from "./write.ts";

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
      if (!operator) throw lacking(`the operator ${node.operator.value}`);
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
  throw lacking(`the operator ${operator}`);
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

/** Messages are plain objects, so their keys are read directly. */
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
  if (!asTest) return filterNamed(name);
  const test = testNamed(asTest.name);
  const { negate } = asTest;
  return (value, args, keywords) => test(value, args, keywords) !== negate;
}

function compileTest(node: TestNode, scope: Scope): Evaluate {
  const operand = compileExpression(node.operand, scope);
  const name = node.test.value;
  if (name === "defined") return (frame) => (operand(frame) !== undefined) !== node.negate;
  const test = testNamed(name);
  return (frame) => test(operand(frame), [], noKeywords) !== node.negate;
}

interface CompiledArguments {
  readonly args: (frame: Frame) => readonly Value[];
  readonly keywords: (frame: Frame) => Keywords;
}

const noArguments: readonly Value[] = [];

/** Compiles the arguments of a call, a filter or a test. */
function compileArguments(nodes: readonly Expression[], compile: (node: Expression) => Evaluate): CompiledArguments {
  const positional: { readonly evaluate: Evaluate; readonly spread: boolean }[] = [];
  const named: { readonly name: string | undefined; readonly evaluate: Evaluate }[] = [];
  for (const node of nodes) {
    if (node.type === "KeywordArgumentExpression") named.push({ name: node.key.value, evaluate: compile(node.value) });
    else if (node.type === "KeywordSpreadExpression") named.push({ name: undefined, evaluate: compile(node.argument) });
    else if (node.type === "SpreadExpression") positional.push({ evaluate: compile(node.argument), spread: true });
    else positional.push({ evaluate: compile(node), spread: false });
  }
  return { args: positionalOf(positional), keywords: keywordsOf(named) };
}

function positionalOf(
  positional: readonly { readonly evaluate: Evaluate; readonly spread: boolean }[],
): (frame: Frame) => readonly Value[] {
  const [first] = positional;
  if (!first) return () => noArguments;
  if (positional.length === 1 && !first.spread) return (frame) => [first.evaluate(frame)];
  return (frame) => {
    const args: Value[] = [];
    for (const { evaluate, spread } of positional) {
      if (spread) args.push(...iterate(evaluate(frame)));
      else args.push(evaluate(frame));
    }
    return args;
  };
}

function keywordsOf(
  named: readonly { readonly name: string | undefined; readonly evaluate: Evaluate }[],
): (frame: Frame) => Keywords {
  if (named.length === 0) return () => noKeywords;
  return (frame) => {
    const keywords = new Map<string, Value>();
    for (const { name, evaluate } of named) {
      const value = evaluate(frame);
      for (const [key, item] of name === undefined ? spreadEntries(value) : [[name, value] as const]) {
        if (keywords.has(key)) throw valueError(`got multiple values for keyword argument '${key}'`);
        keywords.set(key, item);
      }
    }
    return keywords;
  };
}

function spreadEntries(value: Value): (readonly [string, Value])[] {
  if (!isDict(value)) throw valueError(`argument after ** must be a mapping, not ${typeName(value)}`);
  return dictEntries(value).map(([key, item]) => {
    if (typeof key !== "string") throw valueError("keywords must be strings");
    return [key, item] as const;
  });
}

/**
 * Calls a value.
 *
 * @param what its name in errors
 * @throws TemplateError when it cannot be called
 */
function callValue(callee: Value, args: readonly Value[], keywords: Keywords, what: string): Value {
  if (callee instanceof Callable) return callee.call(args, keywords);
  if (callee === undefined) throw valueError(`'${what}' is undefined`);
  throw new TemplateError("value", `'${typeName(callee)}' object is not callable`);
}

/** Compiles `object.name(...)`, looking up a string's method only once. */
function compileMethodCall(object: Evaluate, name: string, { args, keywords }: CompiledArguments): Evaluate {
  const ofString = stringMethod(name);
  const ofDict = isDictMethod(name);
  return (frame) => {
    const value = object(frame);
    if (typeof value === "string" && ofString) return ofString(value, args(frame), keywords(frame));
    if (ofDict && isDict(value)) return callDictMethod(value, name, args(frame), keywords(frame));
    return callValue(getAttribute(value, name), args(frame), keywords(frame), name);
  };
}

type Operator = (left: Evaluate, right: Evaluate) => Evaluate;

/** The operator over two operands that are not evaluated yet. */
function operatorNamed(name: string): Operator | undefined {
  return Object.hasOwn(operators, name) ? operators[name] : undefined;
}

const eager =
  (apply: (left: Value, right: Value) => Value): Operator =>
  (left, right) =>
  (frame) =>
    apply(left(frame), right(frame));

const ordered = (name: string, holds: (order: number) => boolean): Operator =>
  eager((left, right) => {
    if (left === undefined || right === undefined) throw unsupported(name, left, right);
    return holds(compareValues(left, right, name));
  });

const numeric = (name: Arithmetic): Operator =>
  eager((left, right) => {
    const result = arithmetic(name, left, right);
    if (result === undefined) throw unsupported(name, left, right);
    return result;
  });

function unsupported(operator: string, left: Value, right: Value): Error {
  if (operator !== "+" && (left instanceof Markup || right instanceof Markup)) {
    return lacking(`the operator ${operator} over safe text`);
  }
  if (left === undefined || right === undefined) return valueError(`an operand of ${operator} is undefined`);
  return valueError(`unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}

const operators: Readonly<Record<string, Operator>> = {
  and: (left, right) => (frame) => {
    const value = left(frame);
    return isTrue(value) ? right(frame) : value;
  },
  or: (left, right) => (frame) => {
    const value = left(frame);
    return isTrue(value) ? value : right(frame);
  },
  "==": eager((left, right) => equals(left, right)),
  "!=": eager((left, right) => !equals(left, right)),
  "<": ordered("<", (order) => order < 0),
  ">": ordered(">", (order) => order > 0),
  "<=": ordered("<=", (order) => order <= 0),
  ">=": ordered(">=", (order) => order >= 0),
  in: eager((left, right) => contains(right, left)),
  "not in": eager((left, right) => !contains(right, left)),
  "+": eager(add),
  "-": numeric("-"),
  "*": eager(multiply),
  "/": numeric("/"),
  "//": numeric("//"),
  "%": eager((left, right) => {
    if (typeof left === "string") return formatPercent(left, right);
    const result = arithmetic("%", left, right);
    if (result === undefined) throw unsupported("%", left, right);
    return result;
  }),
  "~": eager((left, right) => joinText(textOf(left), textOf(right))),
};

function joinText(left: string, right: string): string {
  checkLength(left.length + right.length, maxTextChars);
  return left + right;
}

function add(left: Value, right: Value): Value {
  if (typeof left === "string" && typeof right === "string") return joinText(left, right);
  if (left instanceof Markup || right instanceof Markup) return addMarkup(left, right);
  if (Array.isArray(left) && Array.isArray(right) && left instanceof PyTuple === right instanceof PyTuple) {
    checkLength(left.length + right.length, maxListLength);
    return left instanceof PyTuple ? PyTuple.ofItems([...left, ...right]) : [...left, ...right];
  }
  const result = arithmetic("+", left, right);
  if (result === undefined) throw unsupported("+", left, right);
  return result;
}

/** Each part that is not safe is escaped. */
function addMarkup(left: Value, right: Value): Markup {
  const parts = [left, right].map((part) => {
    if (part instanceof Markup) return part.text;
    if (typeof part !== "string") throw unsupported("+", left, right);
    return escapeHtml(part);
  });
  return new Markup(joinText(parts[0]!, parts[1]!));
}

function multiply(left: Value, right: Value): Value {
  const [sequence, count] = isInt(left) ? [right, left] : [left, right];
  if (isInt(count) && (typeof sequence === "string" || Array.isArray(sequence))) {
    const times = Math.max(0, Number(count));
    checkLength(sequence.length * times, typeof sequence === "string" ? maxTextChars : maxListLength);
    if (typeof sequence === "string") return sequence.repeat(times);
    const items = Array.from({ length: times }, () => Array.from(sequence as readonly Value[])).flat(1);
    return sequence instanceof PyTuple ? PyTuple.ofItems(items) : items;
  }
  const result = arithmetic("*", left, right);
  if (result === undefined) throw unsupported("*", left, right);
  return result;
}
