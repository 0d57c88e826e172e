import { borrowedLibraries } from "./house-rules.ts";
import { importsOf, isBuiltin, isOwnPackage, isRelative, modulesOf, packageOf } from "./syntax.ts";
import { isSource, type Tree, type Violation } from "./tree.ts";
import {
  lineOfText,
  rootWorkspace,
  thirdPartyDependencies,
  type Workspace,
  workspaceOf,
  workspacesOf,
} from "./workspaces.ts";

/** One import of a library that is not ours. */
interface LibraryUse {
  readonly library: string;
  readonly path: string;
  readonly line: number;
}

function libraryUses(tree: Tree, select: (path: string) => boolean): LibraryUse[] {
  return modulesOf(tree, select).flatMap((module) =>
    importsOf(module)
      .filter(({ specifier }) => !isRelative(specifier) && !isBuiltin(specifier) && !isOwnPackage(specifier))
      .map(({ specifier, line }) => ({ library: packageOf(specifier), path: module.path, line })),
  );
}

/** Whether the file may use a library that another package owns. */
const mayBorrow = (path: string): boolean => borrowedLibraries.some((exception) => exception.path === path);

/** Every library is imported by the sources of one package only, so that it can be replaced in one place. */
export function checkLibraryOwners(tree: Tree): Violation[] {
  const workspaces = workspacesOf(tree);
  const ownerOf = new Map<string, string>();
  const found: Violation[] = [];
  for (const { library, path, line } of libraryUses(tree, (path) => isSource(path) && !mayBorrow(path))) {
    const folder = workspaceOf(workspaces, path)?.folder ?? path;
    const owner = ownerOf.get(library) ?? folder;
    ownerOf.set(library, owner);
    if (owner === folder) continue;
    found.push({ file: path, line, message: `imports ${library}, which ${owner} owns: go through ${owner}` });
  }
  return found;
}

/**
 * What is imported is declared: by sources in `dependencies` of their package, by tests, benches and scripts there, in
 * `devDependencies`, or at the root.
 */
export function checkDeclaredLibraries(tree: Tree): Violation[] {
  const workspaces = workspacesOf(tree);
  const root = rootWorkspace(tree);
  const found: Violation[] = [];
  for (const { library, path, line } of libraryUses(tree, () => true)) {
    const workspace = workspaceOf(workspaces, path) ?? root;
    const declared = Object.keys(workspace?.manifest.dependencies ?? {});
    if (!isSource(path)) {
      declared.push(...Object.keys(workspace?.manifest.devDependencies ?? {}));
      declared.push(...Object.keys(root?.manifest.devDependencies ?? {}));
    }
    if (declared.includes(library)) continue;
    found.push({ file: path, line, message: `imports ${library}: declare it in ${workspace?.file}` });
  }
  return found;
}

/** Versions are exact, and every declared library is imported, run by a script, or types that tsconfig.base names. */
export function checkLibraryDeclarations(tree: Tree): Violation[] {
  const found: Violation[] = [];
  const root = rootWorkspace(tree);
  for (const workspace of [...(root ? [root] : []), ...workspacesOf(tree)]) {
    const { file, text, folder, manifest } = workspace;
    const uses = libraryUses(tree, (path) => folder === "" || path.startsWith(`${folder}/`)).map(
      ({ library }) => library,
    );
    for (const [library, version] of Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })) {
      if (/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version)) continue;
      found.push({
        file,
        line: lineOfText(text, `"${library}":`),
        message: `${library} is "${version}": pin an exact version`,
      });
    }
    for (const library of thirdPartyDependencies({ ...manifest.dependencies, ...manifest.devDependencies })) {
      if (uses.includes(library) || isTool(tree, workspace, library)) continue;
      found.push({ file, line: lineOfText(text, `"${library}":`), message: `${library} is not used: remove it` });
    }
  }
  return found;
}

/** Programs that a library brings under a name other than its own. */
const programs: Readonly<Record<string, string>> = { "@biomejs/biome": "biome", typescript: "tsc" };

function isTool(tree: Tree, { manifest }: Workspace, library: string): boolean {
  if (library.startsWith("@types/")) {
    const name = library.slice("@types/".length);
    // Types of a library that brings none of its own.
    if (Object.hasOwn({ ...manifest.dependencies, ...manifest.devDependencies }, name)) return true;
    return (tree.get("tsconfig.base.json") ?? "").includes(`"types": ["${name}"]`);
  }
  const words = Object.values(manifest.scripts ?? {}).flatMap((script) => script.split(/\s+/));
  return words.includes(programs[library] ?? library);
}

/** A dependency on a package of the workspace names the version that the workspace has. */
export function checkWorkspaceVersions(tree: Tree): Violation[] {
  const version = rootWorkspace(tree)?.manifest.version;
  const found: Violation[] = [];
  for (const { file, text, manifest } of workspacesOf(tree)) {
    for (const [name, wanted] of Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })) {
      if (!isOwnPackage(name) || wanted === version) continue;
      const message = `asks for ${name} "${wanted}": the workspace has ${version}`;
      found.push({ file, line: lineOfText(text, `"${name}":`), message });
    }
  }
  return found;
}

const registryHost =
  /\bregistry\.(npmjs|npmmirror|yarnpkg)\.|\b(artifactory|verdaccio|jfrog)[\w-]*\.[\w-]+|\bnpm\.pkg\.github\./i;
const registrySetting = /^\s*(@[\w-]+:)?registry\s*=|:_auth/m;

/** Nobody's registry is written down: the lock file resolves to no host, and no tracked file names one. */
export function checkNoRegistryHosts(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    for (const [index, line] of text.split("\n").entries()) {
      const resolved = file === "package-lock.json" && /"resolved":\s*"[^"]*:\/\//.test(line);
      const setting = /(^|\/)\.(npm|yarn)rc/.test(file) && registrySetting.test(line);
      if (!resolved && !setting && !registryHost.test(line)) continue;
      found.push({ file, line: index + 1, message: "names a package registry: take the host out" });
    }
  }
  return found;
}
