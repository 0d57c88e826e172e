import { execFileSync } from "node:child_process";
import { lstatSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The files under version control and those about to be: path from the root of the repository -> text. */
export type Tree = ReadonlyMap<string, string>;

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

/** `file:line message` for the place in a text where something breaks a rule; a negative place is that of line 1. */
export function violation(file: string, text: string, offset: number, message: string): string {
  return `${file}:${text.slice(0, Math.max(0, offset)).split("\n").length} ${message}`;
}
