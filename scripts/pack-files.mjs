// npm runs this in the folder of a package before and after it packs it (`prepack`, `postpack`): `node ../../scripts/pack-files.mjs
// add` and `... remove`. Meanwhile the folder has what was built of its sources, the package.json of that, the license, and a
// README if it has none of its own.
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { packedManifest } from "./packed-manifest.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
/** The package.json of the repository meanwhile; one that is left over is of a packing that was interrupted. */
const kept = "package.json.kept";

if (process.argv[2] === "add") {
  restore();
  build();
  const text = readFileSync("package.json", "utf8");
  const manifest = JSON.parse(text);
  copyFileSync(join(root, "LICENSE"), "LICENSE");
  if (!existsSync("README.md")) writeFileSync("README.md", readmeOf(manifest));
  writeFileSync(kept, text);
  writeFileSync("package.json", `${JSON.stringify(packedManifest(manifest), null, 2)}\n`);
} else {
  restore();
  rmSync("LICENSE", { force: true });
  const readme = readmeOf(JSON.parse(readFileSync("package.json", "utf8")));
  if (existsSync("README.md") && readFileSync("README.md", "utf8") === readme) rmSync("README.md");
}

function restore() {
  if (existsSync(kept)) renameSync(kept, "package.json");
}

function build() {
  run(join(root, "node_modules", "typescript", "bin", "tsc"), "-b");
  const bundler = join("bin", "bundle.mjs");
  if (existsSync(bundler)) run(bundler);
}

function run(...command) {
  // npm reads what is written to standard output as its own.
  if (spawnSync(process.execPath, command, { stdio: ["ignore", 2, 2] }).status !== 0) process.exit(1);
}

function readmeOf({ name, description }) {
  return `# ${name}

${description}

A part of Espalier (the package espalier-router), a router tier for LLM engines. Its other packages use this one, and its API may change
in any release.
`;
}
