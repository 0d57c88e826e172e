// `npm run docs`: writes the documents that are made from the code.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ensureBuilt, root } from "./ensure-built.mjs";

ensureBuilt();
const { generatedDocuments } = await import("../apps/router/dist/generated-documents.js");
for (const [name, text] of Object.entries(await generatedDocuments())) {
  writeFileSync(join(root, "docs", name), text);
  console.log(`docs/${name}`);
}
