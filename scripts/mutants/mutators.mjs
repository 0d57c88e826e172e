// What is changed to see whether a test notices: the field's standard list, over the TypeScript syntax tree.
import { parseAst } from "vitest/node";

/**
 * @typedef {object} Mutant
 * @property {string} mutator
 * @property {number} start of the text that is replaced, in UTF-16 units
 * @property {number} end
 * @property {"expression" | "statement" | "body"} kind of what is replaced; a body is what stands between two braces
 * @property {string} after the replacement
 * @property {number} line from 1
 * @property {string} before
 */

const boundary = { "<": "<=", "<=": "<", ">": ">=", ">=": ">" };
const negated = { "<": ">=", "<=": ">", ">": "<=", ">=": "<" };
const equality = { "===": "!==", "!==": "===", "==": "!=", "!=": "==" };
const logical = { "&&": "||", "||": "&&", "??": "&&" };
const arithmetic = { "+": "-", "-": "+", "*": "/", "/": "*", "%": "*" };
const assignment = { "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=" };
const extremes = { min: "max", max: "min" };

/** Constants whose value is a bound, which a test must go one past. */
const boundName = /^(max|min|most|fewest|longest|limit)|(Limit|Bound|Max|Min)$/;

/** Nothing depends on what is logged for people; that errors are logged, something does. */
const ignoredCall = /(^|\.)log(ger)?\??\.(debug|info|trace)\(/;

/** TypeScript's own nodes that hold code; the others are types, which are gone when it runs. */
const wrappers = new Set(["TSAsExpression", "TSSatisfiesExpression", "TSNonNullExpression"]);

/**
 * The mutants of a module, in the order of the text.
 * @param {string} text of a TypeScript module
 * @returns {Mutant[]}
 */
export function findMutants(text) {
  const found = [];
  const add = (mutator, node, after, kind = "expression", { start, end } = node) => {
    if (text.slice(start, end) !== after) found.push({ mutator, kind, start, end, after });
  };
  walk(parseAst(text, { lang: "ts" }), [], (node, parents) => finders[node.type]?.({ text, node, parents, add }));
  const lines = lineStarts(text);
  return found
    .sort((a, b) => a.start - b.start || b.end - a.end || a.mutator.localeCompare(b.mutator))
    .map((mutant) => ({
      ...mutant,
      line: lines.findLastIndex((at) => at <= mutant.start) + 1,
      before: text.slice(mutant.start, mutant.end),
    }));
}

/**
 * The module with all of these mutants in it, each of which is switched on by `globalThis.__mutant(id)` being true.
 * @param {string} text
 * @param {readonly (Mutant & { readonly id: number })[]} mutants of this text, in its order
 */
export function instrument(text, mutants) {
  let next = 0;
  /** The text from `start` to `end`, with the mutants that lie in it. */
  const render = (start, end) => {
    let result = "";
    let at = start;
    while (next < mutants.length && mutants[next].end <= end && mutants[next].start < end) {
      const { start: from, end: to, kind } = mutants[next];
      const same = [];
      while (next < mutants.length && mutants[next].start === from && mutants[next].end === to)
        same.push(mutants[next++]);
      result += text.slice(at, from) + switches[kind](same, render(from, to));
      at = to;
    }
    return result + text.slice(at, end);
  };
  return render(0, text.length);
}

const isOn = ({ id }) => `globalThis.__mutant(${id})`;
const switches = {
  expression: (same, original) =>
    `(${same.map((mutant) => `${isOn(mutant)} ? (${mutant.after}) : `).join("")}(${original}))`,
  // In braces of its own, or an `else` that follows would become its.
  statement: (same, original) => `{ if (!(${same.map(isOn).join(" || ")})) { ${original} } }`,
  body: (same, original) => `if (!(${same.map(isOn).join(" || ")})) {${original}\n}`,
};

/** By type of node: adds its mutants. */
const finders = {
  BinaryExpression({ text, node, add }) {
    const { operator } = node;
    const replaced = (other) => swapOperator(text, node, other);
    if (boundary[operator]) {
      add("boundary", node, replaced(boundary[operator]));
      add("negated comparison", node, replaced(negated[operator]));
    }
    if (equality[operator]) {
      add("equality", node, replaced(equality[operator]));
      for (const side of [node.left, node.right]) {
        if (isString(side) && side.value !== "") add("compared string", side, '""');
      }
    }
    if (arithmetic[operator] && !isText(node)) add("arithmetic", node, replaced(arithmetic[operator]));
  },
  LogicalExpression({ text, node, add, parents }) {
    // In `a || b && c` the other operator binds otherwise, and `??` may not stand beside either without parentheses.
    const [left, right] = [node.left, node.right].map((side) => `(${text.slice(side.start, side.end)})`);
    add("logical", node, `${left} ${logical[node.operator]} ${right}`);
    if (isTest(node, parents)) addGuard({ node, add, parents });
  },
  UnaryExpression({ text, node, add, parents }) {
    const operand = text.slice(node.argument.start, node.argument.end);
    if (node.operator === "!") add("negation", node, operand);
    if (node.operator === "-") add("arithmetic", node, operand);
    if (isNumber(node.argument)) return;
    if (isTest(node, parents)) addGuard({ node, add, parents });
  },
  UpdateExpression({ text, node, add }) {
    const other = node.operator === "++" ? "--" : "++";
    add("arithmetic", node, text.slice(node.start, node.end).replace(node.operator, other));
  },
  AssignmentExpression({ text, node, add }) {
    const other = assignment[node.operator];
    if (other && !isText(node.right)) add("arithmetic", node, swapOperator(text, node, other));
  },
  Literal({ node, parents, add }) {
    if (typeof node.value === "boolean") add("boolean", node, String(!node.value));
    if (isNumber(node) && isBound(parents)) add("number", node, `${node.raw} + 1`);
  },
  CallExpression({ text, node, add }) {
    const { callee } = node;
    const other = callee.type === "MemberExpression" && callee.object.name === "Math" && extremes[callee.property.name];
    if (other) add("min and max", node, `Math.${other}${text.slice(callee.end, node.end)}`);
  },
  ChainExpression({ text, node, add }) {
    for (let link = node.expression; link; link = link.object ?? link.callee ?? link.expression) {
      if (!link.optional) continue;
      const from = (link.object ?? link.callee).end;
      const dot = text.indexOf("?.", from);
      const isNamed = link.type === "MemberExpression" && !link.computed;
      add(
        "optional chaining",
        node,
        `${text.slice(node.start, dot)}${isNamed ? "." : ""}${text.slice(dot + 2, node.end)}`,
      );
    }
  },
  ExpressionStatement({ text, node, add }) {
    const call = skipTo(node.expression, ["AwaitExpression", "UnaryExpression", "ChainExpression"]);
    if (call.type !== "CallExpression" || call.callee.type === "Super") return;
    if (!ignoredCall.test(text.slice(call.start, call.end))) add("removed call", node, ";", "statement");
  },
  ReturnStatement({ node, add, parents }) {
    if (!node.argument) {
      if (parents.at(-1).type !== "IfStatement") add("removed return", node, ";", "statement");
    } else if (isReplaceable(node.argument)) add("returned value", node.argument, "undefined");
  },
  ArrowFunctionExpression({ node, add }) {
    if (node.expression && isReplaceable(node.body)) add("returned value", node.body, "undefined");
  },
  IfStatement: conditional,
  ConditionalExpression: conditional,
  WhileStatement: conditional,
  SwitchCase({ node, add }) {
    if (isString(node.test)) add("compared string", node.test, '""');
  },
  BlockStatement({ node, add, parents }) {
    if (node.body.length === 0 || isAlreadyEmptied(node, parents)) return;
    add("emptied block", node, "", "body", { start: node.start + 1, end: node.end - 1 });
  },
};

/** A condition that has no operator to swap. */
function conditional({ text, node, add, parents }) {
  const { test } = node;
  if (["LogicalExpression", "UnaryExpression"].includes(test.type)) return;
  if (test.type === "BinaryExpression" && (equality[test.operator] || boundary[test.operator])) {
    addGuard({ node: test, add, parents: [...parents, node] });
    return;
  }
  if (test.type === "Literal") return;
  add("negation", test, `!(${text.slice(test.start, test.end)})`);
}

/** A guard: what leaves early is not reached. */
function addGuard({ node, add, parents }) {
  const parent = parents.at(-1);
  if (parent?.type === "IfStatement" && parent.alternate === null) add("removed guard", node, "false");
}

const isTest = (node, parents) => parents.at(-1)?.test === node;

/** Another mutant does the same: its one call is removed, its one value replaced, or its guard. */
function isAlreadyEmptied(node, parents) {
  const parent = parents.at(-1);
  if (parent?.type === "IfStatement" && parent.consequent === node && parent.alternate === null) return true;
  const isConstructor = parents.at(-2)?.kind === "constructor";
  if (isConstructor && node.body.some(({ expression }) => expression?.callee?.type === "Super")) return true;
  const [only, ...others] = node.body;
  return others.length === 0 && ["ExpressionStatement", "ReturnStatement"].includes(only.type);
}

/** A value that no other mutant changes. */
function isReplaceable(node) {
  const value = skipTo(node, ["ParenthesizedExpression", ...wrappers]);
  if (value.type === "Identifier") return value.name !== "undefined";
  if (value.type === "Literal") return typeof value.value !== "boolean";
  if (value.type === "UnaryExpression") return !["!", "void"].includes(value.operator);
  if (value.type === "BinaryExpression") return !boundary[value.operator] && !equality[value.operator];
  return !["LogicalExpression", "AssignmentExpression"].includes(value.type);
}

/** A number that is compared with, limits, or is called a bound. */
function isBound(parents) {
  const parent = parents.at(-1);
  if (parent.type === "BinaryExpression") return Boolean(boundary[parent.operator] || equality[parent.operator]);
  if (parent.type === "CallExpression")
    return parent.callee.object?.name === "Math" && extremes[parent.callee.property.name] !== undefined;
  const declared = parents.findLast(({ type }) => type !== "BinaryExpression");
  return declared?.type === "VariableDeclarator" && boundName.test(declared.id.name ?? "");
}

/** Whether `+` joins texts, as far as the syntax tells. */
function isText(node) {
  if (node.type === "TemplateLiteral" || isString(node)) return true;
  return node.type === "BinaryExpression" && node.operator === "+" && (isText(node.left) || isText(node.right));
}

function swapOperator(text, { left, right, operator, start, end }, other) {
  const at = text.indexOf(operator, left.end);
  return text.slice(start, at) + other + text.slice(Math.min(at + operator.length, right.start), end);
}

function skipTo(node, types) {
  let at = node;
  while (types.includes(at.type)) at = at.expression ?? at.argument;
  return at;
}

const isString = (node) => node?.type === "Literal" && typeof node.value === "string";
const isNumber = (node) => node?.type === "Literal" && typeof node.value === "number";

/** Visits what runs, parents first; types are passed over. */
function walk(node, parents, visit) {
  if (node.type.startsWith("TS") && !wrappers.has(node.type)) return;
  visit(node, parents);
  const inside = [...parents, node];
  for (const [key, child] of Object.entries(node)) {
    if (wrappers.has(node.type) && key !== "expression") continue;
    for (const item of Array.isArray(child) ? child : [child]) {
      if (typeof item?.type === "string") walk(item, inside, visit);
    }
  }
}

function lineStarts(text) {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}
