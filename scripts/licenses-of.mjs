import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** What libraries call the texts that are to come with copies of them. */
const names = /^(?:licence|license|notice|copying)/i;

/**
 * The licenses of the libraries that a bundle has copies of, as their packages have them.
 *
 * @param {string} folder the absolute folder that the names of inputs start from
 * @param {readonly string[]} inputs files of a bundle, as the bundler's metafile names them
 * @returns {string} one text for each library, by name
 */
export function licensesOf(folder, inputs) {
  const packages = new Set();
  for (const input of inputs) {
    const [, found] = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input) ?? [];
    if (found !== undefined) packages.add(found);
  }
  const texts = [...packages].map((path) => textOf(join(folder, path)));
  return [...new Set(texts)].sort().join(`\n${"-".repeat(100)}\n\n`);
}

function textOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const files = readdirSync(folder).filter((file) => names.test(file) && !/\.[cm]?[jt]s$/.test(file));
  // Of a few that have no file, the README has it.
  const found = files.length > 0 ? files : readdirSync(folder).filter((file) => /^readme/i.test(file));
  const texts = found.map((file) => readFileSync(join(folder, file), "utf8").trim());
  return `${name} ${version} (${license})\n\n${texts.join("\n\n")}\n`;
}
