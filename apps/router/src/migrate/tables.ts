import { readFileSync } from "node:fs";
import { parseYaml } from "@espalier/server";

/**
 * Reads what other routers have and what becomes of it here: a file of the package's folder `migration`, which is two folders
 * up from this module, from the module that is made of it and from the bundle that it is joined to.
 *
 * @param name of the file, without its extension
 */
export function readTable(name: string): unknown {
  const url = new URL(`../../migration/${name}.yaml`, import.meta.url);
  return parseYaml(readFileSync(url, "utf8"), `${name}.yaml`).value;
}

/** The words of a text such as `--queue-size --queue-timeout-secs`. */
export const wordsOf = (text = ""): readonly string[] => text.split(/\s+/).filter((word) => word !== "");
