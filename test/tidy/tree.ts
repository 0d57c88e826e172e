import { execFileSync } from "node:child_process";
import { lstatSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The files under version control and those about to be: path from the root of the repository -> text. */
export type Tree = ReadonlyMap<string, string>;

/** One place that breaks a rule, with what to do about it. */
export interface Violation {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  readonly message: string;
}

/** Reads every file that git tracks or would track. Files with a NUL byte are read one character per byte. */
export function loadTree(root: string): Tree {
  const listing = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], { cwd: root, encoding: "utf8" });
  const tree = new Map<string, string>();
  for (const path of listing.split("\0").filter(Boolean).sort()) {
    const absolute = join(root, path);
    if (!lstatSync(absolute, { throwIfNoEntry: false })?.isFile()) continue;
    const bytes = readFileSync(absolute);
    tree.set(path, bytes.toString(bytes.includes(0) ? "latin1" : "utf8"));
  }
  return tree;
}

/** Code that is built: TypeScript under `src` of a package, of an app, or of the benches. */
export const isSource = (path: string): boolean => /^((packages|apps)\/[^/]+|bench)\/src\/.*\.[cm]?tsx?$/.test(path);

/** The public surface of a package, an app, or the benches. */
export const isIndex = (path: string): boolean => /^((packages|apps)\/[^/]+|bench)\/src\/index\.ts$/.test(path);

/** Tests and what only tests use. */
export const isTest = (path: string): boolean =>
  /^((packages|apps)\/[^/]+\/|bench\/)?test\/.*\.([cm]?tsx?|mjs)$/.test(path);

/** Every file with code in it, wherever it stands. */
export const isCode = (path: string): boolean => /\.([cm]?[jt]sx?)$/.test(path);

/** The line, from 1, of a position in a text; a negative position (nothing found) is line 1. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf("\n"); at !== -1 && at < offset; at = text.indexOf("\n", at + 1)) line++;
  return line;
}

/** The violations as one line each, in order of place, for the message of a failing test. */
export function renderViolations(violations: readonly Violation[]): string {
  return violations
    .toSorted((a, b) => (a.file === b.file ? a.line - b.line : a.file < b.file ? -1 : 1))
    .map(({ file, line, message }) => `${file}:${line} ${message}`)
    .join("\n");
}
