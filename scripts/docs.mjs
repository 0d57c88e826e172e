// `npm run docs`: writes the documents that are made from the code, the tables of the migration guide, and the
// figures of benchmarks that other documents show: from the last run of `npm run bench -- peers --json > docs/benchmarks/peers.json`,
// and from docs/benchmarks/figures.json.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, setUp } from "./set-up.mjs";

await setUp();
const { generatedDocuments } = await import("../apps/router/src/generated-documents.ts");
const { boundsPage, renderBounds } = await import("../test/tidy/bounds.ts");
const { loadTree } = await import("../test/tidy/tree.ts");
const { namedFigures, withFigures } = await import("../bench/src/document-figures.ts");
for (const [name, text] of Object.entries(await generatedDocuments())) {
  writeFileSync(join(root, "docs", name), text);
  console.log(`docs/${name}`);
}

writeFileSync(join(root, boundsPage), renderBounds(loadTree(root)));
console.log(boundsPage);

const readJson = (name) => JSON.parse(readFileSync(join(root, "docs", "benchmarks", name), "utf8"));
const figures = namedFigures(readJson("peers.json"), readJson("figures.json"));
for (const path of execFileSync("git", ["ls-files", "*.md"], { cwd: root, encoding: "utf8" })
  .split("\n")
  .filter(Boolean)) {
  const before = readFileSync(join(root, path), "utf8");
  const after = withFigures(before, figures);
  if (after === before) continue;
  writeFileSync(join(root, path), after);
  console.log(path);
}
