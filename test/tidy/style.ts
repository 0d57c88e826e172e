import { posix } from "node:path";
import {
  type Comment,
  callableName,
  importsOf,
  isOwnPackage,
  isRelative,
  lineOfNode,
  modulesOf,
  type Node,
  type SourceModule,
  walk,
} from "./syntax.ts";
import { isCode, isIndex, isTest, lineAt, type Tree, type Violation } from "./tree.ts";

/** Constructs that the house does not use, in any file with code. */
export function checkConstructs(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const module of modulesOf(tree, () => true)) {
    const file = module.path;
    if (module.error) found.push({ file, line: 1, message: `does not parse: ${module.error}` });
    walk(module.program, (node) => {
      const message = constructMessage(node, file);
      if (message) found.push({ file, line: lineOfNode(module, node), message });
    });
  }
  return found;
}

function constructMessage(node: Node, file: string): string | undefined {
  switch (node.type) {
    case "TSAnyKeyword":
      return "says `any`: say `unknown` and narrow it";
    case "TSEnumDeclaration":
      return "declares an enum: use a union of strings";
    case "TSModuleDeclaration":
      // `declare module "library"` adds to a library's types, for which there is no other way.
      return node.id.type === "Literal" ? undefined : "declares a namespace: use a module";
    case "ExportDefaultDeclaration":
      return /^vitest\.\w+\.(ts|mjs)$/.test(posix.basename(file)) ? undefined : "has a default export: export by name";
    case "ExportAllDeclaration":
      return "exports everything of a module: name what is public";
    case "ImportDeclaration":
      return isOurs(node.source.value) && node.specifiers.some(({ type }) => type === "ImportNamespaceSpecifier")
        ? "imports our own code as a namespace: import names"
        : undefined;
    default:
      return undefined;
  }
}

const isOurs = (specifier: string): boolean => isRelative(specifier) || isOwnPackage(specifier);

/** Files and folders with code are named in kebab-case. */
export function checkFileNames(tree: Tree): Violation[] {
  const kebab = /^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z]+)*$/;
  return [...tree.keys()]
    .filter((file) => isCode(file) && !file.split("/").every((part) => kebab.test(part)))
    .map((file) => ({ file, line: 1, message: "is not named in kebab-case: rename it" }));
}

interface CommentRule {
  readonly pattern: RegExp;
  readonly message: string;
}

const unfinished: CommentRule = {
  pattern: /\b(TODO|FIXME|XXX|HACK)\b/,
  message: "leaves work undone: do it, or take the note out",
};

const workplace: CommentRule = {
  pattern: /\/work\/(main|shared)\b|\.\.\/shared\b/,
  message: "names a place outside the repository: take it out",
};

const commentRules: readonly CommentRule[] = [
  unfinished,
  workplace,
  {
    pattern: /@ts-(ignore|expect-error|nocheck)|biome-ignore|eslint-disable|prettier-ignore/,
    message: "silences a tool: mend what it reports",
  },
  { pattern: /\b(design|style)\.md\b/, message: "cites a document that is not in the repository: say it here" },
  {
    pattern: /(?<![\w/]|\b(vLLM|SGLang|TensorRT-LLM|undici|fastify|Node) (PR|pull request|issue) )#\d+\b|\bticket \d/i,
    message: "mentions an issue number: say what it was about",
  },
];

/** Comments say why; they carry no unfinished work, no silenced tools, no history and no ticket numbers. */
export function checkComments(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const module of modulesOf(tree, () => true)) {
    for (const comment of module.comments) found.push(...commentViolations(module, comment));
  }
  return found;
}

function commentViolations(module: SourceModule, comment: Comment): Violation[] {
  const found: Violation[] = [];
  for (const { pattern, message } of commentRules) {
    const match = pattern.exec(comment.text);
    // The text starts after a delimiter of two characters.
    if (match) {
      found.push({ file: module.path, line: lineAt(module.text, comment.start + 2 + match.index), message });
    }
  }
  return found;
}

/** Files without code (documents, configuration, scripts of the shell) leave nothing undone and name no workplace. */
export function checkTexts(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    if (isCode(file) || file === "package-lock.json" || text.includes("\0")) continue;
    for (const [index, line] of text.split("\n").entries()) {
      for (const { pattern, message } of [unfinished, workplace]) {
        if (pattern.test(line)) found.push({ file, line: index + 1, message });
      }
    }
  }
  return found;
}

const suites = new Set(["describe", "test", "it", "suite", "bench"]);

/** `sharedPath` and `hasRedisServer` print the line themselves. */
const saysSo = /NOT RUN|\bsharedPath\(|\bhasRedisServer\(|\bcapture/;

/** No test is singled out, skipped for good, retried or left to be written. */
export function checkTestModifiers(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const module of modulesOf(tree, isTest)) {
    walk(module.program, (node, ancestors) => {
      const message = modifierMessage(node, ancestors.at(-1), module.text);
      if (message) found.push({ file: module.path, line: lineOfNode(module, node), message });
    });
  }
  return found;
}

function modifierMessage(node: Node, parent: Node | undefined, text: string): string | undefined {
  if (node.type === "ObjectExpression") {
    const inSuite = parent?.type === "CallExpression" && suites.has(rootName(parent.callee) ?? "");
    const keys = inSuite ? node.properties.map((property) => keyOf(property)) : [];
    const key = keys.find((name) => name === "retry" || name === "skip" || name === "only" || name === "todo");
    return key && `sets ${key} on a test: take it off`;
  }
  if (node.type !== "MemberExpression" || node.property.type !== "Identifier") return undefined;
  if (!suites.has(rootName(node) ?? "")) return undefined;
  const modifier = node.property.name;
  if (modifier === "only" || modifier === "skip" || modifier === "todo" || modifier === "fails") {
    return `uses .${modifier}: take it off`;
  }
  const isConditional = modifier === "skipIf" || modifier === "runIf";
  return isConditional && !saysSo.test(text)
    ? `uses .${modifier} without saying so: print a line that starts with NOT RUN`
    : undefined;
}

function keyOf(property: Node): string | undefined {
  return property.type === "Property" && property.key.type === "Identifier" ? property.key.name : undefined;
}

/** `index.ts` holds a doc comment on the package and re-exports, and only `src` itself has one. */
export function checkIndexFiles(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const module of modulesOf(tree, (path) => posix.basename(path) === "index.ts")) {
    const file = module.path;
    if (!isIndex(file)) {
      found.push({ file, line: 1, message: "is a barrel: import the modules themselves" });
      continue;
    }
    const first = module.comments[0];
    if (!first?.isDoc || module.text.slice(0, first.start).trim() !== "") {
      found.push({ file, line: 1, message: "does not start with a doc comment on its package: write one" });
    }
    for (const node of module.program.body) {
      if (node.type === "ExportNamedDeclaration" && (node.source || node.specifiers.length === 0) && !node.declaration)
        continue;
      const message = "holds more than re-exports: move it to a module of its own";
      found.push({ file, line: lineOfNode(module, node), message });
    }
  }
  return found;
}

/** What index files pass on and can be called has a doc comment where it is defined. */
export function checkDocComments(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const index of modulesOf(tree, isIndex)) {
    for (const { specifier, names } of importsOf(index)) {
      const path = posix.join(posix.dirname(index.path), specifier);
      for (const module of modulesOf(tree, (candidate) => candidate === path)) {
        found.push(...undocumented(module, names));
      }
    }
  }
  return found;
}

function undocumented(module: SourceModule, names: readonly string[] | "all"): Violation[] {
  const found: Violation[] = [];
  for (const node of module.program.body) {
    if (node.type !== "ExportNamedDeclaration" || !node.declaration) continue;
    const name = callableName(node.declaration);
    if (name === undefined || (names !== "all" && !names.includes(name))) continue;
    const hasDoc = module.comments.some(
      ({ isDoc, end }) => isDoc && end <= node.start && module.text.slice(end, node.start).trim() === "",
    );
    if (hasDoc) continue;
    const message = `${name} is public and has no doc comment: say what it does, its units and errors`;
    found.push({ file: module.path, line: lineOfNode(module, node), message });
  }
  return found;
}

/** `test` of `test`, `test.each(table)` and `test.skipIf(absent)`. */
function rootName(node: Node): string | undefined {
  if (node.type === "Identifier") return node.name;
  if (node.type === "MemberExpression") return rootName(node.object);
  if (node.type === "CallExpression") return rootName(node.callee);
  if (node.type === "TaggedTemplateExpression") return rootName(node.tag);
  return undefined;
}
