// `npm run docs`: writes the documents that are made from the code, and the figures in the README from the last run of
// `npm run bench -- peers --json > docs/benchmarks/peers.json`.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ensureBuilt, root } from "./ensure-built.mjs";

ensureBuilt();
const { generatedDocuments } = await import("../apps/router/dist/generated-documents.js");
const { withFigures } = await import("../bench/dist/peers/readme-figures.js");
for (const [name, text] of Object.entries(await generatedDocuments())) {
  writeFileSync(join(root, "docs", name), text);
  console.log(`docs/${name}`);
}

const readme = join(root, "README.md");
const report = JSON.parse(readFileSync(join(root, "docs", "benchmarks", "peers.json"), "utf8"));
writeFileSync(readme, withFigures(readFileSync(readme, "utf8"), report));
console.log("README.md");
