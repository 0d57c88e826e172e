import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/**
 * The unit tests of the package whose folder this is run in, which is what turbo does. Vitest loads its own sources, so that
 * tests can replace modules; Node loads those of other packages. Modes: `quick` (every file, property tests at a tenth
 * of their depth) and `full` (files that ask for depth, and those named `*.deep.test.ts`).
 */
export default defineConfig(({ mode }) => {
  const isFull = mode === "full";
  const files = testFiles().filter(({ path, text }) => (isFull ? isDeep(path, text) : !path.endsWith(".deep.test.ts")));
  const shared = {
    env: { TEST_DEPTH: mode },
    server: { deps: { external: [otherSources()] } },
    restoreMocks: true,
    setupFiles: files.some(({ text }) => text.includes('"fast-check"'))
      ? [fileURLToPath(new URL("vitest.seed.ts", import.meta.url))]
      : [],
    testTimeout: isFull ? 120_000 : 20_000,
  };
  // Modules in whose place others are put, and memory that is measured, must be a file's own.
  const [alone, together] = [true, false].map((isAlone) =>
    files.filter(({ text }) => /\bvi\.mock\(|\bmemoryUsage\b/.test(text) === isAlone).map(({ path }) => path),
  );
  return {
    test: {
      maxWorkers: 2,
      passWithNoTests: isFull,
      reporters: ["default", "json"],
      outputFile: { json: `.test/${mode}.json` },
      projects: [
        { test: { ...shared, name: "together", include: together ?? [], isolate: false } },
        ...(alone?.length ? [{ test: { ...shared, name: "alone", include: alone } }] : []),
      ],
    },
  };
});

function testFiles(): { readonly path: string; readonly text: string }[] {
  return readdirSync("test", { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => join("test", name))
    .map((path) => ({ path, text: readFileSync(path, "utf8") }));
}

function isDeep(path: string, text: string): boolean {
  return path.endsWith(".deep.test.ts") || /\b(randomRuns|fixedSeeds)\(\d/.test(text);
}

function otherSources(): RegExp {
  const own = process.cwd().replaceAll("\\", "/");
  const name = own.slice(own.lastIndexOf("/") + 1);
  return new RegExp(`/(?:(?:packages|apps)/(?!${name}/)[^/]+${name === "bench" ? "" : "|bench"})/(?:src|bin)/`);
}
