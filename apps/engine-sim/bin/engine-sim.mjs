#!/usr/bin/env node
// In a clone of the repository it runs the sources, once what they need is there; a package has been built.
import { existsSync } from "node:fs";

const setUp = new URL("../../../scripts/set-up.mjs", import.meta.url);
// Installed, that would be a file of whoever installed it.
const isClone = !import.meta.url.includes("/node_modules/") && existsSync(setUp);
if (isClone) await (await import(setUp.href)).setUp();
else if (Number.parseInt(process.versions.node, 10) < 24) {
  process.stderr.write(`espalier-engine-sim needs Node 24 or newer; this is ${process.versions.node}.\n`);
  process.exit(1);
}
await import(isClone ? "../src/main.ts" : "../dist/bundle/main.js");
