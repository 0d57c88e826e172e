// `npm run bench -- NAME [--json]`: builds what is missing, then runs the benchmark.
import { ensureBuilt } from "./ensure-built.mjs";

ensureBuilt();
await import("../bench/dist/main.js");
