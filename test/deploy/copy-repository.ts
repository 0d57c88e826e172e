import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readlinkSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { root } from "./files.ts";

/**
 * Copies the files that git knows or would add, so nothing that was built. The libraries are those of this clone; the
 * packages of the repository are those of the copy.
 *
 * @returns the folder
 */
export function copyRepository(copy: string): string {
  const list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const paths = execFileSync("git", list, { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  for (const path of paths.split("\0").filter(Boolean)) {
    if (existsSync(join(root, path))) cpSync(join(root, path), join(copy, path));
  }
  const libraries = join(root, "node_modules");
  const scope = readdirSync(join(libraries, "@espalier")).map((name) => join("@espalier", name));
  mkdirSync(join(copy, "node_modules", "@espalier"), { recursive: true });
  for (const name of readdirSync(libraries)) {
    if (name === "@espalier" || name === "espalier-router") continue;
    symlinkSync(join(libraries, name), join(copy, "node_modules", name));
  }
  // Links to packages of the repository are relative.
  for (const name of ["espalier-router", ...scope]) {
    symlinkSync(readlinkSync(join(libraries, name)), join(copy, "node_modules", name));
  }
  return copy;
}
