import type { Port, PortException } from "./house-rules.ts";
import { lineOfNode, modulesOf, type Node, walk } from "./syntax.ts";
import { isSource, isTest, type Tree, type Violation } from "./tree.ts";

const advice: Readonly<Record<Port, string>> = {
  time: "take a Clock",
  timers: "take a Scheduler",
  randomness: "take a Random",
  console: "take a Logger, or write to the output stream that the command is given",
  environment: "take the value as configuration",
};

/** Globals that are one of the ports' business in every use. */
const globalNames: Readonly<Record<string, Port>> = {
  performance: "time",
  setTimeout: "timers",
  setInterval: "timers",
  setImmediate: "timers",
  console: "console",
};

const members: Readonly<Record<string, Port>> = {
  "Date.now": "time",
  "process.hrtime": "time",
  "process.uptime": "time",
  "Math.random": "randomness",
  "crypto.randomUUID": "randomness",
  "crypto.getRandomValues": "randomness",
  "AbortSignal.timeout": "timers",
  "process.env": "environment",
};

const importedNames: Readonly<Record<string, Readonly<Record<string, Port>>>> = {
  "node:crypto": {
    randomUUID: "randomness",
    randomBytes: "randomness",
    randomInt: "randomness",
    randomFillSync: "randomness",
    randomFill: "randomness",
    getRandomValues: "randomness",
    webcrypto: "randomness",
    default: "randomness",
    "*": "randomness",
  },
  "node:process": { env: "environment", hrtime: "time", uptime: "time" },
};

const importedModules: Readonly<Record<string, Port>> = {
  "node:timers": "timers",
  "node:timers/promises": "timers",
  "node:perf_hooks": "time",
  "node:console": "console",
};

/** Sources see time, timers, randomness, the console and the environment through ports only. */
export function checkPorts(tree: Tree, exceptions: readonly PortException[]): Violation[] {
  const found: Violation[] = [];
  const needed = new Set<string>();
  for (const module of modulesOf(tree, isSource)) {
    walk(module.program, (node, ancestors) => {
      const use = portUse(node, ancestors.at(-1));
      if (!use) return;
      const [port, what] = use;
      const exception = exceptions.find(({ path, ports }) => covers(path, module.path) && ports.includes(port));
      if (exception) {
        needed.add(`${exception.path} ${port}`);
      } else {
        found.push({ file: module.path, line: lineOfNode(module, node), message: `uses ${what}: ${advice[port]}` });
      }
    });
  }
  for (const { path, ports } of exceptions) {
    for (const port of ports) {
      if (needed.has(`${path} ${port}`)) continue;
      found.push({ file: path, line: 1, message: `does not need its exception for ${port}: remove that` });
    }
  }
  return found;
}

const covers = (exception: string, path: string): boolean =>
  exception.endsWith("/") ? path.startsWith(exception) : path === exception;

function portUse(node: Node, parent: Node | undefined): readonly [Port, string] | undefined {
  switch (node.type) {
    case "Identifier": {
      const port = Object.hasOwn(globalNames, node.name) ? globalNames[node.name] : undefined;
      return port && isReference(node, parent) ? [port, node.name] : undefined;
    }
    case "MemberExpression": {
      const name = memberName(node);
      const port = name !== undefined && Object.hasOwn(members, name) ? members[name] : undefined;
      return port && name ? [port, name] : undefined;
    }
    case "NewExpression":
    case "CallExpression":
      return isName(node.callee, "Date") && (node.type === "CallExpression" || node.arguments.length === 0)
        ? ["time", "the current Date"]
        : undefined;
    case "ImportDeclaration":
      return node.importKind === "type" ? undefined : importUse(node);
    default:
      return undefined;
  }
}

function importUse(node: Node & { type: "ImportDeclaration" }): readonly [Port, string] | undefined {
  const source = node.source.value;
  const whole = importedModules[source];
  if (whole) return [whole, source];
  for (const specifier of node.specifiers) {
    const name =
      specifier.type === "ImportSpecifier" && specifier.imported.type === "Identifier"
        ? specifier.imported.name
        : specifier.type === "ImportNamespaceSpecifier"
          ? "*"
          : "default";
    const port = importedNames[source]?.[name];
    if (port) return [port, `${name} of ${source}`];
  }
  return undefined;
}

/** Whether an identifier stands for the global, and is not the name of a member, a key, or a declaration. */
function isReference(node: Node, parent: Node | undefined): boolean {
  switch (parent?.type) {
    case "MemberExpression":
      return parent.computed || parent.object === node || isName(parent.object, "globalThis");
    case "Property":
    case "PropertyDefinition":
    case "MethodDefinition":
      return parent.computed || parent.value === node;
    case "TSPropertySignature":
    case "TSMethodSignature":
    case "TSTypeQuery":
    case "ImportSpecifier":
    case "ExportSpecifier":
      return false;
    default:
      return true;
  }
}

function memberName(node: Node & { type: "MemberExpression" }): string | undefined {
  const property = node.property;
  const member =
    property.type === "Identifier" && !node.computed
      ? property.name
      : property.type === "Literal"
        ? String(property.value)
        : undefined;
  const object = node.object.type === "MemberExpression" ? memberName(node.object) : undefined;
  if (object?.startsWith("globalThis.")) return `${object.slice("globalThis.".length)}.${member}`;
  return node.object.type === "Identifier" ? `${node.object.name}.${member}` : undefined;
}

const isName = (node: Node | null | undefined, name: string): boolean =>
  node?.type === "Identifier" && node.name === name;

/** Tests wait for a condition with a deadline, never for time to pass. */
export function checkNoSleeping(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const module of modulesOf(tree, isTest)) {
    walk(module.program, (node, ancestors) => {
      if (!isSleep(node, ancestors)) return;
      const message = "sleeps: use waitFor of @espalier/testing, or virtual time";
      found.push({ file: module.path, line: lineOfNode(module, node), message });
    });
  }
  return found;
}

function isSleep(node: Node, ancestors: readonly Node[]): boolean {
  if (node.type === "ImportDeclaration") return node.source.value === "node:timers/promises";
  if (node.type !== "CallExpression" || node.callee.type !== "Identifier") return false;
  if (node.callee.name === "sleep" || node.callee.name === "delay") return true;
  if (node.callee.name !== "setTimeout") return false;
  return ancestors.some((ancestor, index) => {
    if (ancestor.type !== "NewExpression" || !isName(ancestor.callee, "Promise")) return false;
    const executor = ancestors[index + 1];
    if (executor?.type !== "ArrowFunctionExpression" && executor?.type !== "FunctionExpression") return false;
    return resolves(node.arguments[0], executor.params[0]);
  });
}

/** Whether a timer's callback is the promise's `resolve`, or an arrow that only calls it. */
function resolves(callback: Node | undefined, resolve: Node | undefined): boolean {
  if (resolve?.type !== "Identifier") return false;
  if (isName(callback, resolve.name)) return true;
  return (
    callback?.type === "ArrowFunctionExpression" &&
    callback.body.type === "CallExpression" &&
    isName(callback.body.callee, resolve.name)
  );
}
