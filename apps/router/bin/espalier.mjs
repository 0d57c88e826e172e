#!/usr/bin/env node
// In a clone of the repository, first builds what is missing; installed from a package, there is nothing to build.
import { existsSync } from "node:fs";

const builder = new URL("../../../scripts/ensure-built.mjs", import.meta.url);
if (existsSync(builder)) (await import(builder.href)).ensureBuilt();
await import("../dist/bundle/main.js");
