import { posix } from "node:path";
import { lineAt, type Tree } from "./tree.ts";

/** The fields of a package.json that the checks look at. */
export interface Manifest {
  readonly name?: string;
  readonly version?: string;
  readonly private?: boolean;
  readonly description?: string;
  readonly license?: string;
  readonly type?: string;
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports?: unknown;
  readonly files?: readonly string[];
  readonly scripts?: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

/** One package.json: a package, an app, or the workspaces `bench` and `test`. */
export interface Workspace {
  /** Without the scope: `common`. */
  readonly name: string;
  /** From the root of the repository: `packages/common`. Empty for the root. */
  readonly folder: string;
  /** Path of the package.json. */
  readonly file: string;
  readonly text: string;
  readonly manifest: Manifest;
}

const scope = "@espalier/";

/** Every workspace below the root. */
export function workspacesOf(tree: Tree): Workspace[] {
  return [...tree]
    .filter(([path]) => /^(packages|apps)\/[^/]+\/package\.json$|^[^/]+\/package\.json$/.test(path))
    .map(([file, text]) => readWorkspace(file, text));
}

/** The package.json at the root, if there is one. */
export function rootWorkspace(tree: Tree): Workspace | undefined {
  const text = tree.get("package.json");
  return text === undefined ? undefined : readWorkspace("package.json", text);
}

function readWorkspace(file: string, text: string): Workspace {
  const folder = posix.dirname(file) === "." ? "" : posix.dirname(file);
  return { name: posix.basename(folder), folder, file, text, manifest: JSON.parse(text) };
}

/** Whether a workspace has sources to build: packages, apps, and what exports something. */
export const isBuilt = ({ folder, manifest }: Workspace): boolean =>
  /^(packages|apps)\//.test(folder) || manifest.exports !== undefined;

/** The workspace that a file belongs to. */
export function workspaceOf(workspaces: readonly Workspace[], path: string): Workspace | undefined {
  return workspaces.find(({ folder }) => path.startsWith(`${folder}/`));
}

/** Names, without the scope, of the workspaces in a table of dependencies. */
export function ownDependencies(table: Readonly<Record<string, string>> | undefined): string[] {
  return Object.keys(table ?? {})
    .filter((name) => name.startsWith(scope))
    .map((name) => name.slice(scope.length));
}

/** Names of the libraries of others in a table of dependencies. */
export function thirdPartyDependencies(table: Readonly<Record<string, string>> | undefined): string[] {
  return Object.keys(table ?? {}).filter((name) => !name.startsWith(scope));
}

/** The line of a text on which `needle` first stands; 1 when it is absent. */
export const lineOfText = (text: string, needle: string): number => lineAt(text, text.indexOf(needle));
