// `npm run build`: what packages and the image have in place of sources: JavaScript, declarations, and bundles. Nothing in a clone
// reads it, except benchmarks, which measure the bundled command.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { root, setUp } from "./set-up.mjs";

/** Bundles of the page and of the command. */
const bundlers = ["apps/dashboard/bin/bundle.mjs", "apps/router/bin/bundle.mjs"];

/** Builds what is older than its sources. Exits the process with code 1 when that fails. */
export function build() {
  run(join(root, "node_modules", "typescript", "bin", "tsc"), "-b");
  for (const bundler of bundlers) run(join(root, bundler));
}

function run(...command) {
  if (spawnSync(process.execPath, command, { cwd: root, stdio: "inherit" }).status !== 0) process.exit(1);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await setUp();
  build();
}
