import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import packageTests from "../../vitest.package.ts";
import { findMutants, instrument } from "./mutators.mjs";

/** Of run-mutants.mjs. This runs in the folder of the package. */
const plan = JSON.parse(readFileSync(process.env.ESPALIER_MUTANTS, "utf8"));

/** Every mutant that is to be run is in the sources at once (mutant schemata); the runner switches one on at a time. */
const schemata = {
  name: "mutants",
  enforce: "pre",
  transform(code, path) {
    const wanted = plan.mutants.filter(({ file }) => join(process.cwd(), file) === path);
    if (wanted.length === 0) return undefined;
    const found = findMutants(code);
    return {
      code: instrument(
        code,
        wanted.map(({ id, index }) => ({ ...found[index], id })),
      ),
      map: null,
    };
  },
};

const [{ test: together }] = packageTests({ mode: "quick", command: "serve" }).test.projects;

export default defineConfig({
  plugins: [schemata],
  test: {
    ...together,
    // One file stands for all of them: the runner imports the others itself.
    include: plan.testFiles.slice(0, 1),
    passWithNoTests: true,
    runner: fileURLToPath(new URL("vitest.runner.mjs", import.meta.url)),
    maxWorkers: 1,
  },
});
