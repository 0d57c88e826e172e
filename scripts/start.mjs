// `npm start`: `espalier demo`, from the sources.
import { setUp } from "./set-up.mjs";

await setUp();
process.argv.splice(2, 0, "demo");
await import("../apps/router/bin/espalier.mjs");
