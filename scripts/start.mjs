// `npm start`: whatever is missing, then `espalier demo`.
import { ensureBuilt } from "./ensure-built.mjs";

ensureBuilt();
process.env.ESPALIER_SKIP_BUILD = "1";
process.argv.splice(2, 0, "demo");
await import("../apps/router/bin/espalier.mjs");
