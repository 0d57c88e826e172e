import type { SizeException } from "./house-rules.ts";
import { lineOfNode, modulesOf, type Node, walk } from "./syntax.ts";
import { countLines, isCode, isSource, isTest, lineAt, type Tree, type Violation } from "./tree.ts";

const maxFileLines = 300;
/** A table of cases is one concept however many there are. */
const maxTestFileLines = 500;
const maxFileLinesEver = 500;
const maxFunctionLines = 70;
const maxTestCallbackLines = 120;
const maxFileBytes = 1024 * 1024;

/** Files with code have at most 300 lines, tests 500; an exception may raise the former to 500. */
export function checkFileLengths(tree: Tree, exceptions: readonly SizeException[]): Violation[] {
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    if (!isCode(file)) continue;
    const exception = exceptions.find(({ path }) => path === file);
    const usual = isTest(file) ? maxTestFileLines : maxFileLines;
    const limit = Math.min(exception?.maxLines ?? usual, maxFileLinesEver);
    const lines = countLines(text);
    if (lines > limit) {
      found.push({ file, line: limit + 1, message: `has ${lines} lines, ${limit} are allowed: split it by concept` });
    }
  }
  for (const { path, maxLines } of exceptions) {
    const text = tree.get(path);
    if (text !== undefined && countLines(text) > maxFileLines && maxLines <= maxFileLinesEver) continue;
    found.push({ file: path, line: 1, message: `its size exception is not needed or above 500: remove it` });
  }
  return found;
}

/** Functions, methods and arrows have at most 70 lines; callbacks of `describe`, `test` and hooks 120. */
export function checkFunctionLengths(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const module of modulesOf(tree, () => true)) {
    walk(module.program, (node, ancestors) => {
      if (!isFunction(node)) return;
      const lines = lineAt(module.text, node.end - 1) - lineOfNode(module, node) + 1;
      const isCallback = !isSource(module.path) && isTestCallback(ancestors.at(-1));
      const limit = isCallback ? maxTestCallbackLines : maxFunctionLines;
      if (lines <= limit) return;
      const message = `function of ${lines} lines, ${limit} are allowed: move leaves out of it`;
      found.push({ file: module.path, line: lineOfNode(module, node), message });
    });
  }
  return found;
}

function isFunction(node: Node): boolean {
  return (
    node.type === "FunctionDeclaration" || node.type === "FunctionExpression" || node.type === "ArrowFunctionExpression"
  );
}

const testFunctions = new Set(["describe", "test", "it", "beforeAll", "beforeEach", "afterAll", "afterEach"]);

function isTestCallback(parent: Node | undefined): boolean {
  return parent?.type === "CallExpression" && testFunctions.has(rootName(parent.callee) ?? "");
}

/** `test` of `test`, `test.each(table)` and `test.skipIf(absent)`. */
export function rootName(node: Node): string | undefined {
  if (node.type === "Identifier") return node.name;
  if (node.type === "MemberExpression") return rootName(node.object);
  if (node.type === "CallExpression") return rootName(node.callee);
  if (node.type === "TaggedTemplateExpression") return rootName(node.tag);
  return undefined;
}

/** No tracked file is larger than 1 MiB. */
export function checkFileSizes(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    const bytes = text.includes("\0") ? text.length : Buffer.byteLength(text);
    if (bytes <= maxFileBytes) continue;
    found.push({ file, line: 1, message: `has ${bytes} bytes, ${maxFileBytes} are allowed: make it when needed` });
  }
  return found;
}

const minTestLinesPerSourceLine = 1.3;

/** Over all packages and apps, tests have at least 1.3 lines for each line of source. */
export function checkTestRatio(tree: Tree): Violation[] {
  let sourceLines = 0;
  let testLines = 0;
  for (const [file, text] of tree) {
    if (isSource(file) && !file.startsWith("bench/")) sourceLines += countLines(text);
    else if (isTest(file)) testLines += countLines(text);
  }
  if (testLines >= sourceLines * minTestLinesPerSourceLine) return [];
  const message = `${testLines} lines of tests for ${sourceLines} of source, at least ${minTestLinesPerSourceLine} to 1 is asked: write tests`;
  return [{ file: "test", line: 1, message }];
}
