// `npm run test:convergence`: routers over every backend, and seeded runs. `-- --seeds N` runs N new seeds beside the fixed
// ones, `-- --seed N` that one only.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

const { values, positionals } = parseArgs({
  options: { seed: { type: "string" }, seeds: { type: "string" } },
  allowPositionals: true,
});
for (const [flag, value] of Object.entries(values)) {
  if (/^\d{1,9}$/.test(value)) continue;
  console.error(`error: --${flag} must be a whole number of at most nine digits`);
  process.exit(2);
}
await setUp();
const env = { ...process.env, ESPALIER_SKIP_BUILD: "1" };
if (values.seed !== undefined) env.ESPALIER_CONVERGENCE_SEED = values.seed;
if (values.seeds !== undefined) env.ESPALIER_CONVERGENCE_SEEDS = values.seeds;
const files = values.seed === undefined ? positionals : ["test/convergence/random.test.ts"];
const run = spawnSync(join(root, "node_modules", ".bin", "vitest"), ["run", "--project", "convergence", ...files], {
  cwd: root,
  stdio: "inherit",
  env,
});
process.exit(run.status ?? 1);
