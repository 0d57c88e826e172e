import { posix } from "node:path";
import { type ESTree, parseSync } from "vite";
import { isCode, lineAt, type Tree } from "./tree.ts";

export type Node = ESTree.Node;

export interface Comment {
  /** Without the delimiters. */
  readonly text: string;
  readonly isDoc: boolean;
  readonly start: number;
  readonly end: number;
}

export interface SourceModule {
  readonly path: string;
  readonly text: string;
  readonly program: ESTree.Program;
  readonly comments: readonly Comment[];
  /** The first syntax error. The program is empty then. */
  readonly error: string | undefined;
}

/** One way in which a module names another. */
export interface ImportEdge {
  /** As written: `node:fs`, `@espalier/common`, `./clock.ts`. */
  readonly specifier: string;
  /** The exported names that are taken; `"all"` where they cannot be told. */
  readonly names: readonly string[] | "all";
  /** Named as a file to run or to read, by `new URL`. */
  readonly isUrl: boolean;
  readonly line: number;
}

const parsed = new Map<string, SourceModule>();

/** Parses a file; again only when its text is another one than the last time. */
export function parseModule(path: string, text: string): SourceModule {
  const known = parsed.get(path);
  if (known?.text === text) return known;
  const result = parseSync(path, text, { lang: /tsx?$/.test(path) ? "ts" : "js" });
  const module: SourceModule = {
    path,
    text,
    program: result.program,
    comments: result.comments.map(({ type, value, start, end }) => ({
      text: value,
      isDoc: type === "Block" && value.startsWith("*"),
      start,
      end,
    })),
    error: result.errors[0]?.message,
  };
  parsed.set(path, module);
  return module;
}

/** The parsed modules of the files with code that `select` wants. */
export function modulesOf(tree: Tree, select: (path: string) => boolean): SourceModule[] {
  return [...tree].filter(([path]) => isCode(path) && select(path)).map(([path, text]) => parseModule(path, text));
}

/** Calls `visit` for every node, parents first. `ancestors` starts at the program and ends with the parent. */
export function walk(root: Node, visit: (node: Node, ancestors: readonly Node[]) => void): void {
  const ancestors: Node[] = [];
  const enter = (value: unknown): void => {
    if (Array.isArray(value)) {
      for (const item of value) enter(item);
    } else if (isNode(value)) {
      visit(value, ancestors);
      ancestors.push(value);
      for (const [key, child] of Object.entries(value)) {
        if (typeof child === "object" && key !== "parent") enter(child);
      }
      ancestors.pop();
    }
  };
  enter(root);
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

export const lineOfNode = (module: SourceModule, node: { readonly start: number }): number =>
  lineAt(module.text, node.start);

/** What stands in source for the name of an export or import. */
export function nameOf(name: ESTree.ModuleExportName): string {
  return name.type === "Literal" ? name.value : name.name;
}

/** The name of what a declaration makes callable: a function, a class, or a constant that holds a function. */
export function callableName(node: Node): string | undefined {
  if (node.type === "FunctionDeclaration" || node.type === "ClassDeclaration") return node.id?.name;
  if (node.type !== "VariableDeclaration") return undefined;
  const [first] = node.declarations;
  const isCallable = first?.init?.type === "ArrowFunctionExpression" || first?.init?.type === "FunctionExpression";
  return isCallable && first.id.type === "Identifier" ? first.id.name : undefined;
}

const imports = new WeakMap<SourceModule, readonly ImportEdge[]>();

/** Every import, re-export, dynamic import, type import, and `new URL("./file", import.meta.url)` of a module. */
export function importsOf(module: SourceModule): readonly ImportEdge[] {
  const known = imports.get(module);
  if (known) return known;
  const edges: ImportEdge[] = [];
  walk(module.program, (node) => {
    const found = edgeOf(node);
    if (found) edges.push({ isUrl: false, names: "all", ...found, line: lineOfNode(module, node) });
  });
  imports.set(module, edges);
  return edges;
}

function edgeOf(node: Node): (Partial<ImportEdge> & { readonly specifier: string }) | undefined {
  switch (node.type) {
    case "ImportDeclaration":
      return { specifier: node.source.value, names: importedNames(node.specifiers) };
    case "ExportNamedDeclaration":
      if (!node.source) return undefined;
      return { specifier: node.source.value, names: node.specifiers.map(({ local }) => nameOf(local)) };
    case "ExportAllDeclaration":
      return { specifier: node.source.value };
    case "ImportExpression":
      return literal(node.source);
    case "TSImportType":
      return {
        specifier: node.source.value,
        names: node.qualifier?.type === "Identifier" ? [node.qualifier.name] : "all",
      };
    case "NewExpression":
      return urlOf(node);
    default:
      return undefined;
  }
}

function importedNames(specifiers: readonly ESTree.ImportDeclarationSpecifier[]): readonly string[] | "all" {
  const names: string[] = [];
  for (const specifier of specifiers) {
    if (specifier.type === "ImportNamespaceSpecifier") return "all";
    names.push(specifier.type === "ImportDefaultSpecifier" ? "default" : nameOf(specifier.imported));
  }
  return names;
}

function literal(node: Node | undefined): { readonly specifier: string } | undefined {
  return node?.type === "Literal" && typeof node.value === "string" ? { specifier: node.value } : undefined;
}

function urlOf(node: ESTree.NewExpression): { readonly specifier: string; readonly isUrl: boolean } | undefined {
  const [path, base] = node.arguments;
  if (node.callee.type !== "Identifier" || node.callee.name !== "URL" || base?.type !== "MemberExpression")
    return undefined;
  const edge = literal(path);
  return edge && /^\.{1,2}\/.*\.[cm]?[jt]s$/.test(edge.specifier) ? { ...edge, isUrl: true } : undefined;
}

/** The file that a relative specifier names. A name of built JavaScript stands for its TypeScript source. */
export function resolveRelative(tree: Tree, from: string, specifier: string): string | undefined {
  const path = posix.join(posix.dirname(from), specifier);
  return [path, path.replace(/\.([cm]?)js$/, ".$1ts")].find((candidate) => tree.has(candidate));
}

/** `fastify` of `fastify/types`, `@scope/name` of `@scope/name/deep`. */
export function packageOf(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
}

export const isRelative = (specifier: string): boolean => specifier.startsWith(".") || specifier.startsWith("/");
export const isBuiltin = (specifier: string): boolean => specifier.startsWith("node:");
export const isOwnPackage = (specifier: string): boolean => specifier.startsWith("@espalier/");
