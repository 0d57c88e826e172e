import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Makes a folder hold these files and no others. A file that is as it should be stays untouched, since a program may run from it:
 * of two benchmarks at a time, for example.
 *
 * @param {string} folder
 * @param {Readonly<Record<string, string | Uint8Array>>} files contents by name
 */
export function writeOutput(folder, files) {
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) if (!(name in files)) rmSync(join(folder, name), { recursive: true });
  for (const [name, contents] of Object.entries(files)) {
    const path = join(folder, name);
    if (!existsSync(path) || !readFileSync(path).equals(Buffer.from(contents))) writeFileSync(path, contents);
  }
}
