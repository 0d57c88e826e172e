import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/**
 * The unit tests of the package whose folder this is run in, which is what turbo does. Vitest loads its own sources, so that
 * tests can replace modules; Node loads those of other packages. Modes: `quick` (property tests at a tenth of their depth,
 * without files named `*.deep.test.ts`) and `full` (everything).
 */
export default defineConfig(({ mode }) => {
  const isFull = mode === "full";
  const files = testFiles().filter(({ path }) => isFull || !path.endsWith(".deep.test.ts"));
  const shared = {
    env: { TEST_DEPTH: mode },
    server: { deps: { external: [otherSources()] } },
    restoreMocks: true,
    setupFiles: files.some(({ text }) => text.includes('"fast-check"'))
      ? [fileURLToPath(new URL("vitest.seed.ts", import.meta.url))]
      : [],
  };
  const kinds = Map.groupBy(
    files,
    (file) => `${isAlone(file) ? "alone" : "together"}${isFull && isDeep(file) ? ", deep" : ""}`,
  );
  const projects = Array.from(kinds, ([name, some]) => ({
    test: {
      ...{ ...shared, name, include: some.map(({ path }) => path) },
      isolate: name.startsWith("alone"),
      // It ends a test that hangs. On a machine that others use, a second of computing takes many.
      testTimeout: name.endsWith("deep") ? 240_000 : 120_000,
    },
  }));
  return {
    test: { maxWorkers: 2, reporters: ["default", "json"], outputFile: { json: `.test/${mode}.json` }, projects },
  };
});

interface TestFile {
  readonly path: string;
  readonly text: string;
}

function testFiles(): TestFile[] {
  return readdirSync("test", { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => join("test", name))
    .map((path) => ({ path, text: readFileSync(path, "utf8") }));
}

/** Modules in whose place others are put, and memory that is measured, must be a file's own. */
function isAlone({ text }: TestFile): boolean {
  return /\bvi\.mock\(|\bmemoryUsage\b/.test(text);
}

function isDeep({ path, text }: TestFile): boolean {
  return path.endsWith(".deep.test.ts") || /\b(randomRuns|fixedSeeds)\(\d/.test(text);
}

function otherSources(): RegExp {
  const own = process.cwd().replaceAll("\\", "/");
  const name = own.slice(own.lastIndexOf("/") + 1);
  return new RegExp(`/(?:(?:packages|apps)/(?!${name}/)[^/]+${name === "bench" ? "" : "|bench"})/(?:src|bin)/`);
}
