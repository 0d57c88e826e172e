import { posix } from "node:path";
import { type Tree, violation } from "./tree.ts";

interface Workspace {
  /** Without the scope: `core`; of the command `espalier-router`. */
  readonly name: string;
  /** From the root of the repository: `packages/core`. */
  readonly folder: string;
  /** Path of the package.json. */
  readonly file: string;
  readonly text: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
}

const scope = "@espalier/";

/** Every package.json below the root. */
function workspacesOf(tree: Tree): Workspace[] {
  return [...tree]
    .filter(([path]) => /^((packages|apps)\/)?[^/]+\/package\.json$/.test(path))
    .map(([file, text]) => {
      const { name = "", dependencies = {}, devDependencies = {} } = JSON.parse(text) as Partial<Workspace>;
      const folder = posix.dirname(file);
      return { name: name.replace(scope, ""), folder, file, text, dependencies, devDependencies };
    });
}

const isOwn = (name: string): boolean => name.startsWith(scope) || name === "espalier-router";

const isBuilt = ({ folder }: Workspace): boolean => folder !== "test";

/** Names, without the scope, of the packages of the workspace that a package depends on. */
const ownOf = ({ dependencies }: Workspace): string[] =>
  Object.keys(dependencies).flatMap((name) => (isOwn(name) ? [name.replace(scope, "")] : []));

const architecture = "ARCHITECTURE.md";

/**
 * Packages depend on what their row of the table "Dependencies" in ARCHITECTURE.md lets them, on packages (third column) and on libraries
 * (fourth): a new arrow is drawn there first. That sources import only what their package.json declares is the business of knip.
 */
export function checkArrows(tree: Tree): string[] {
  const text = tree.get(architecture) ?? "";
  const rows = new Map([...text.matchAll(/^\| `([\w-]+)` \|[^|]*\|([^|]*)\|([^|]*)\|$/gm)].map((row) => [row[1], row]));
  const built = workspacesOf(tree).filter(isBuilt);
  const found: string[] = [];
  for (const workspace of built) {
    const row = rows.get(workspace.name);
    const real = Object.keys(workspace.dependencies).map((name) => name.replace(scope, ""));
    const drawn = [...`${row?.[2]}${row?.[3]}`.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name);
    for (const name of real.filter((each) => !drawn.includes(each))) {
      const place = workspace.text.indexOf(`${name}"`);
      found.push(
        violation(workspace.file, workspace.text, place, `imports ${name}, for which ${architecture} has no arrow`),
      );
    }
    for (const name of drawn.filter((each) => !real.includes(each))) {
      found.push(
        violation(
          architecture,
          text,
          row?.index ?? 0,
          `draws an arrow from ${workspace.name} to ${name}, which is none`,
        ),
      );
    }
  }
  for (const [name, row] of rows) {
    if (built.some((workspace) => workspace.name === name)) continue;
    found.push(violation(architecture, text, row.index, `has a row for ${name}, which is no package`));
  }
  return found;
}

/** Project references are the dependencies, so that `tsc -b` builds what has changed; the root has every package. */
export function checkReferences(tree: Tree): string[] {
  const built = workspacesOf(tree).filter(isBuilt);
  const folderOf = new Map(built.map(({ name, folder }) => [name, folder]));
  const wanted = new Map(
    built.map((workspace) => [`${workspace.folder}/tsconfig.json`, ownOf(workspace).map((name) => folderOf.get(name))]),
  );
  wanted.set("tsconfig.json", [...folderOf.values()]);
  return [...wanted].flatMap(([file, folders]) => {
    const text = tree.get(file) ?? "{}";
    const { references = [] } = JSON.parse(text) as { readonly references?: readonly { readonly path: string }[] };
    const actual = references.map(({ path }) => posix.join(posix.dirname(file), path));
    return [
      ...folders.filter((folder) => !actual.includes(folder ?? "")).map((folder) => `lacks a reference to ${folder}`),
      ...actual.filter((folder) => !folders.includes(folder)).map((folder) => `refers to ${folder}, no dependency`),
    ].map((message) => violation(file, text, 0, message));
  });
}

/** Tests of a package import it and other packages, never files of another package; sources are held to that by `rootDir`. */
export function checkTestImports(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    const folder = /^((?:packages|apps)\/[^/]+|bench|test)(?:\/test)?\/.*\.ts$/.exec(file)?.[1];
    if (folder === undefined) continue;
    for (const match of text.matchAll(/^[^'"`\n]*(?:from |import\()"(\.[^"]+)"/gm)) {
      const [, specifier = ""] = match;
      if (posix.join(posix.dirname(file), specifier).startsWith(`${folder}/`)) continue;
      found.push(violation(file, text, match.index, `imports ${specifier}, outside ${folder}: import the package`));
    }
  }
  return found;
}

/** Versions are exact; that of a package of the workspace is the one that all have. */
export function checkVersions(tree: Tree): string[] {
  const rootText = tree.get("package.json") ?? "{}";
  const root = JSON.parse(rootText) as Partial<Workspace> & { readonly version?: string };
  const manifests = [{ file: "package.json", text: rootText, dependencies: {}, devDependencies: {}, ...root }];
  const found: string[] = [];
  for (const { file, text, dependencies, devDependencies } of [...manifests, ...workspacesOf(tree)]) {
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) {
      const isRight = isOwn(name) ? version === root.version : /^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version);
      if (!isRight) found.push(violation(file, text, text.indexOf(`"${name}":`), `${name} is "${version}": pin it`));
    }
  }
  return found;
}

const maxFileBytes = 1024 * 1024;

/** Nothing that a build or a profiler makes is tracked, nor any file above 1 MiB; what is built is TypeScript. */
export function checkNoBuildProducts(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    const isMade =
      /(^|\/)(dist|coverage|node_modules|\.turbo|\.test)\/|\.tsbuildinfo$|\.d\.[cm]?ts$|\.map$|\.log$|\.(cpu|heap)profile$/.test(
        file,
      );
    if (isMade) found.push(violation(file, text, 0, "is made by a tool: do not track it"));
    if (/\/src\/.*\.[cm]?js$/.test(file)) found.push(violation(file, text, 0, "is JavaScript: write TypeScript"));
    const bytes = text.includes("\0") ? text.length : Buffer.byteLength(text);
    if (bytes > maxFileBytes) found.push(violation(file, text, 0, `has ${bytes} bytes: make it when it is needed`));
  }
  return found;
}
