import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundleProgram } from "../../../scripts/bundle-program.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const beside = (name, path) => fileURLToPath(new URL(path, import.meta.resolve(name)));

bundleProgram(root, {
  main: join(root, "src", "main.ts"),
  // Programs of threads and of child processes stand beside the modules that start them, as those look for them.
  "child-main": join(root, "src", "simulate", "child-main.ts"),
  "large-body-worker": beside("@espalier/server", "large-bodies/large-body-worker.ts"),
  "warm-up-traffic": beside("@espalier/server", "warm-up-traffic.ts"),
  "tokenizer-worker": beside("@espalier/tokenizer", "workers/tokenizer-worker.ts"),
});
