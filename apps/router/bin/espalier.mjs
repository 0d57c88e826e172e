#!/usr/bin/env node
// In a clone of the repository, first builds what is missing; installed from a package, there is nothing to build.
import { existsSync } from "node:fs";

const builder = new URL("../../../scripts/ensure-built.mjs", import.meta.url);
// Installed, that would be a file of whoever installed it.
const isInstalled = import.meta.url.includes("/node_modules/");
if (!isInstalled && existsSync(builder)) (await import(builder.href)).ensureBuilt();
await import("../dist/bundle/main.js");
