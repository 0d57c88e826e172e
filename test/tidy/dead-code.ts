import { posix } from "node:path";
import {
  callableName,
  type ImportEdge,
  importsOf,
  isRelative,
  lineOfNode,
  modulesOf,
  type Node,
  nameOf,
  parseModule,
  resolveRelative,
  type SourceModule,
  walk,
} from "./syntax.ts";
import { isIndex, isSource, isTest, lineAt, type Tree, type Violation } from "./tree.ts";

/**
 * Every source file is reached from where something starts (`index.ts`, `main.ts` of an app, or a built file that a
 * package.json or a script names), not from a test; every helper of tests from a test.
 */
export function checkDeadFiles(tree: Tree): Violation[] {
  const reached = new Set<string>();
  const pending = [...tree.keys()].filter((path) => isRoot(tree, path));
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    if (reached.has(path)) continue;
    reached.add(path);
    pending.push(...neighboursOf(tree, path));
  }
  return [...tree.keys()]
    .filter((path) => (isSource(path) || isTest(path)) && !reached.has(path))
    .map((file) => ({ file, line: 1, message: "is reached from nowhere: wire it or delete it" }));
}

function isRoot(tree: Tree, path: string): boolean {
  if (isIndex(path)) return true;
  if (/^apps\/[^/]+\/src\/(.*\/)?main\.ts$/.test(path)) return true;
  if (isTest(path)) return /\.test\.ts$/.test(path);
  if (!isSource(path)) return true;
  const built = path.replace("/src/", "/dist/").replace(/\.ts$/, ".js");
  const fromFolder = built.split("/").slice(2).join("/");
  const manifest = tree.get(`${path.split("/").slice(0, 2).join("/")}/package.json`) ?? "";
  const starters = ["package.json", ...[...tree.keys()].filter((name) => name.startsWith("scripts/"))];
  return manifest.includes(`./${fromFolder}"`) || starters.some((name) => (tree.get(name) ?? "").includes(built));
}

function neighboursOf(tree: Tree, path: string): string[] {
  return modulesOf(tree, (candidate) => candidate === path)
    .flatMap((module) => importsOf(module))
    .filter(({ specifier }) => isRelative(specifier))
    .map(({ specifier }) => resolveRelative(tree, path, specifier))
    .filter((found) => found !== undefined)
    .filter((found) => !(isTest(path) && isSource(found)));
}

/** Every relative import names a file that exists. */
export function checkDanglingImports(tree: Tree): Violation[] {
  return modulesOf(tree, () => true).flatMap((module) =>
    importsOf(module)
      .filter(({ specifier }) => isRelative(specifier) && !specifier.includes("/dist/"))
      .filter(({ specifier }) => resolveRelative(tree, module.path, specifier) === undefined)
      .map(({ specifier, line }) => ({ file: module.path, line, message: `imports ${specifier}: no such file` })),
  );
}

/**
 * What a module exports (index files aside) is imported by another module of the package or by its tests. A type may
 * also be exported because the module's own signatures name it. A module that nobody imports at all is the business of
 * `checkDeadFiles`.
 */
export function checkDeadExports(tree: Tree): Violation[] {
  const taken = takenNames(tree, () => true);
  const found: Violation[] = [];
  for (const module of modulesOf(tree, (path) => isSource(path) || isTest(path))) {
    const names = taken.get(module.path);
    const isMain = posix.basename(module.path) === "main.ts";
    if (isIndex(module.path) || names === "all" || (names === undefined && !isMain)) continue;
    for (const node of module.program.body) {
      if (node.type !== "ExportNamedDeclaration" || node.source) continue;
      for (const name of exportedNames(node)) {
        if (names?.has(name) || (isTypeDeclaration(node) && mentions(module, name) > 1)) continue;
        const message = `exports ${name}, which nobody imports: unexport it or delete it`;
        found.push({ file: module.path, line: lineAt(module.text, node.start), message });
      }
    }
  }
  return found;
}

function isTypeDeclaration({ declaration }: Node & { type: "ExportNamedDeclaration" }): boolean {
  return declaration?.type === "TSInterfaceDeclaration" || declaration?.type === "TSTypeAliasDeclaration";
}

function mentions(module: SourceModule, name: string): number {
  let count = 0;
  walk(module.program, (node) => {
    if (node.type === "Identifier" && node.name === name) count++;
  });
  return count;
}

/** For each file, the names that the files of `select` import from it by a relative path. */
function takenNames(tree: Tree, select: (path: string) => boolean): Map<string, Set<string> | "all"> {
  const taken = new Map<string, Set<string> | "all">();
  const take = (path: string, { names }: ImportEdge): void => {
    const before = taken.get(path);
    if (before === "all") return;
    taken.set(path, names === "all" ? "all" : new Set([...(before ?? []), ...names]));
  };
  for (const module of modulesOf(tree, select)) {
    for (const edge of importsOf(module)) {
      const path = isRelative(edge.specifier) ? resolveRelative(tree, module.path, edge.specifier) : undefined;
      if (path !== undefined && path !== module.path) take(path, edge);
    }
  }
  return taken;
}

function exportedNames(node: Node & { type: "ExportNamedDeclaration" }): string[] {
  const names = node.specifiers.map(({ exported }) => nameOf(exported));
  const { declaration } = node;
  if (declaration?.type === "VariableDeclaration") {
    for (const { id } of declaration.declarations) if (id.type === "Identifier") names.push(id.name);
  } else if (declaration && "id" in declaration && declaration.id?.type === "Identifier") {
    names.push(declaration.id.name);
  }
  return names;
}

/**
 * Every function and class that a package makes public is used: by another workspace, or by the package's own sources.
 * Nothing is built without being wired. `testing` is there for its own sake.
 */
export function checkUnwired(tree: Tree): Violation[] {
  const outside = publicNamesInUse(tree);
  const inside = takenNames(tree, (path) => isSource(path) && !isIndex(path));
  const found: Violation[] = [];
  for (const index of modulesOf(tree, (path) => isIndex(path) && path.startsWith("packages/"))) {
    const name = index.path.split("/")[1];
    if (name === "testing") continue;
    for (const { specifier, names } of importsOf(index)) {
      const path = resolveRelative(tree, index.path, specifier) ?? "";
      const taken = inside.get(path);
      for (const [callable, line] of path === "" ? [] : callablesOf(parseModule(path, tree.get(path) ?? ""))) {
        if (names !== "all" && !names.includes(callable)) continue;
        if (taken === "all" || taken?.has(callable) || outside.has(`@espalier/${name} ${callable}`)) continue;
        const message = `makes ${callable} public, which no program and no package uses: wire it or delete it`;
        found.push({ file: path, line, message });
      }
    }
  }
  return found;
}

/** Functions and classes that a module exports and does not use itself, with their lines. */
function callablesOf(module: SourceModule): Map<string, number> {
  const callables = new Map<string, number>();
  for (const node of module.program.body) {
    const name =
      node.type === "ExportNamedDeclaration" && node.declaration ? callableName(node.declaration) : undefined;
    if (name !== undefined) callables.set(name, lineOfNode(module, node));
  }
  const mentions = new Map<string, number>();
  walk(module.program, (node) => {
    if (node.type === "Identifier") mentions.set(node.name, (mentions.get(node.name) ?? 0) + 1);
  });
  for (const name of [...callables.keys()]) if ((mentions.get(name) ?? 0) > 1) callables.delete(name);
  return callables;
}

/** `@espalier/package name` for each name that sources or benches of another workspace import. */
function publicNamesInUse(tree: Tree): Set<string> {
  const imported = new Set<string>();
  for (const module of modulesOf(tree, (path) => !isTest(path))) {
    for (const { specifier, names } of importsOf(module)) {
      if (module.path.startsWith(`packages/${specifier.split("/")[1]}/`)) continue;
      for (const name of names === "all" ? [] : names) imported.add(`${specifier} ${name}`);
    }
  }
  return imported;
}
