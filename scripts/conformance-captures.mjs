// `npm run conformance:captures -- --dir DIR`: builds what is missing, then runs recorded engine traffic through the code.
import { ensureBuilt } from "./ensure-built.mjs";

ensureBuilt();
await import("../bench/dist/captures/main.js");
