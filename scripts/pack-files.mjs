// npm runs this in the folder of a package before and after it packs it (`prepack`, `postpack`). Only meanwhile the folder has the
// license, and a README if it has none of its own: `node ../../scripts/pack-files.mjs add` and `... remove`.
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const { name, description } = JSON.parse(readFileSync("package.json", "utf8"));
const readme = `# ${name}

${description}

A part of Espalier (the package espalier), a router tier for LLM engines. Its other packages use this one, and its API may change
in any release.
`;

if (process.argv[2] === "add") {
  copyFileSync(fileURLToPath(new URL("../LICENSE", import.meta.url)), "LICENSE");
  if (!existsSync("README.md")) writeFileSync("README.md", readme);
} else {
  rmSync("LICENSE", { force: true });
  if (existsSync("README.md") && readFileSync("README.md", "utf8") === readme) rmSync("README.md");
}
