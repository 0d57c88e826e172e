import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";

interface ParseOptions {
  /** Whether `<<` merges sections, as compose has it. */
  readonly merge?: boolean;
}

/** The root of the repository, with a slash at its end. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** @param path seen from the root of the repository */
export function readText(path: string): string {
  return readFileSync(root + path, "utf8");
}

/**
 * The documents of a YAML file; empty ones are left out.
 *
 * @param path seen from the root of the repository
 * @throws Error for a file that is no YAML, or that has a key twice
 */
export const readYaml = <Document>(path: string, options: ParseOptions = {}): readonly Document[] =>
  parseYaml(readText(path), path, options);

/**
 * The documents of a YAML text; empty ones are left out.
 *
 * @param name of the text, in errors
 * @throws Error for a text that is no YAML, or that has a key twice
 */
export function parseYaml<Document>(text: string, name: string, options: ParseOptions = {}): readonly Document[] {
  return parseAllDocuments(text, options).flatMap((document) => {
    const [error] = document.errors;
    if (error) throw new Error(`${name}: ${error.message}`);
    const value = document.toJS() as Document | null;
    return value === null ? [] : [value];
  });
}

/** Paths below a folder, seen from the root of the repository, in order. */
export function filesIn(folder: string, ending: string): readonly string[] {
  return readdirSync(root + folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending))
    .map((name) => `${folder}/${name}`)
    .sort();
}
