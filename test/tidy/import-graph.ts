import { posix } from "node:path";
import type { AllowedImports } from "./house-rules.ts";
import { importsOf, isOwnPackage, isRelative, modulesOf } from "./syntax.ts";
import { isSource, isTest, type Tree, type Violation } from "./tree.ts";
import { isBuilt, lineOfText, ownDependencies, workspaceOf, workspacesOf } from "./workspaces.ts";

/** Packages import and declare only what the table of arrows lets them, and every package has a row in it. */
export function checkArrows(tree: Tree, allowed: AllowedImports): Violation[] {
  const found: Violation[] = [];
  const built = workspacesOf(tree).filter(isBuilt);
  for (const { name, file, text, manifest } of built) {
    const row = allowed[name];
    if (row === undefined) {
      found.push({ file, line: 1, message: `has no row in allowedImports: add one to test/tidy/house-rules.ts` });
      continue;
    }
    for (const dependency of ownDependencies(manifest.dependencies)) {
      if (row === "anything" || row.includes(dependency)) continue;
      const message = `${name} may not import ${dependency}: wire the two in server or an app`;
      found.push({ file, line: lineOfText(text, `"@espalier/${dependency}"`), message });
    }
  }
  for (const name of Object.keys(allowed)) {
    if (built.some((workspace) => workspace.name === name)) continue;
    const message = `allowedImports has a row for ${name}, which does not exist: remove it`;
    found.push({ file: "test/tidy/house-rules.ts", line: 1, message });
  }
  return found;
}

/** Imports of workspace packages are declared (`devDependencies` count for `bench` and `test`), and the reverse. */
export function checkDeclaredWorkspaces(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const workspace of workspacesOf(tree)) {
    const { name, folder, file, text, manifest } = workspace;
    const declared = new Set(
      ownDependencies(
        isBuilt(workspace) ? manifest.dependencies : { ...manifest.dependencies, ...manifest.devDependencies },
      ),
    );
    const used = new Set<string>();
    const own = isBuilt(workspace) ? isSource : () => true;
    for (const module of modulesOf(tree, (path) => path.startsWith(`${folder}/`) && own(path))) {
      for (const { specifier, line } of importsOf(module)) {
        if (!isOwnPackage(specifier)) continue;
        const imported = specifier.split("/")[1] ?? "";
        used.add(imported);
        if (imported === name) {
          found.push({ file: module.path, line, message: `imports its own package: use a relative path` });
        } else if (!declared.has(imported)) {
          found.push({ file: module.path, line, message: `imports ${specifier}: declare it in ${file}` });
        }
      }
    }
    for (const dependency of declared) {
      if (used.has(dependency) || resolvesProgram(tree, folder, dependency)) continue;
      const line = lineOfText(text, `"@espalier/${dependency}"`);
      found.push({ file, line, message: `declares @espalier/${dependency} but does not import it: remove it` });
    }
  }
  return found;
}

/** Project references equal the declared workspace dependencies; the root lists every package and app. */
export function checkReferences(tree: Tree): Violation[] {
  const built = workspacesOf(tree).filter(isBuilt);
  const folderOf = new Map(built.map(({ name, folder }) => [name, folder]));
  const found: Violation[] = [];
  for (const { folder, manifest } of built) {
    const wanted = ownDependencies(manifest.dependencies).map((name) => folderOf.get(name) ?? `packages/${name}`);
    found.push(...compareReferences(tree, `${folder}/tsconfig.json`, wanted));
  }
  const folders = built.map(({ folder }) => folder);
  found.push(...compareReferences(tree, "tsconfig.json", folders));
  return found;
}

function compareReferences(tree: Tree, file: string, wanted: readonly string[]): Violation[] {
  const text = tree.get(file);
  if (text === undefined) return [{ file, line: 1, message: "is missing: add it" }];
  const { references = [] }: { references?: readonly { readonly path: string }[] } = JSON.parse(text);
  const actual = new Map(references.map(({ path }) => [posix.join(posix.dirname(file), path), path]));
  const found: Violation[] = [];
  for (const folder of wanted) {
    if (!actual.has(folder)) found.push({ file, line: 1, message: `lacks a reference to ${folder}: add it` });
  }
  for (const [folder, path] of actual) {
    if (wanted.includes(folder)) continue;
    found.push({ file, line: lineOfText(text, `"${path}"`), message: `refers to ${folder}, no dependency: remove it` });
  }
  return found;
}

/** No package reaches itself by way of its dependencies. */
export function checkCycles(tree: Tree): Violation[] {
  const built = workspacesOf(tree).filter(isBuilt);
  const dependencies = new Map(built.map(({ name, manifest }) => [name, ownDependencies(manifest.dependencies)]));
  const reaches = (from: string, target: string, seen: Set<string>): boolean =>
    (dependencies.get(from) ?? []).some((next) => {
      if (next === target) return true;
      if (seen.has(next)) return false;
      seen.add(next);
      return reaches(next, target, seen);
    });
  return built
    .filter(({ name }) => reaches(name, name, new Set()))
    .map(({ name, file }) => ({ file, line: 1, message: `${name} depends on itself through others: cut the cycle` }));
}

/** Relative imports of sources stay inside `src`, those of tests inside the package; other packages are imported by bare name. */
export function checkImportPaths(tree: Tree): Violation[] {
  const workspaces = workspacesOf(tree);
  const found: Violation[] = [];
  for (const module of modulesOf(tree, (candidate) => isSource(candidate) || isTest(candidate))) {
    const { path } = module;
    const folder = workspaceOf(workspaces, path)?.folder;
    for (const { specifier, isUrl, line } of importsOf(module)) {
      const home = isSource(path) && !isUrl ? `${folder}/src/` : `${folder}/`;
      if (isOwnPackage(specifier) && specifier.split("/").length > 2) {
        found.push({ file: path, line, message: `imports ${specifier}: import the package by its bare name` });
      } else if (isRelative(specifier) && !posix.join(posix.dirname(path), specifier).startsWith(home)) {
        found.push({ file: path, line, message: `imports ${specifier}, outside ${home}: import the package instead` });
      }
    }
  }
  return found;
}

/** Whether the sources look up a program of the package, `import.meta.resolve("@espalier/name/bin")`, to run it. */
function resolvesProgram(tree: Tree, folder: string, name: string): boolean {
  const call = `import.meta.resolve("@espalier/${name}/bin")`;
  return [...tree].some(([path, text]) => path.startsWith(`${folder}/src/`) && text.includes(call));
}
