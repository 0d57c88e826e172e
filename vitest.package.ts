import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/**
 * The unit tests of the package whose folder this is run in, which is what turbo does. Its own sources are read as they are,
 * other packages as they were built, which turbo has done before. Modes: `quick` (every file, property tests at a tenth
 * of their depth) and `full` (files that ask for depth, and those named `*.deep.test.ts`).
 */
export default defineConfig(({ mode }) => {
  const isFull = mode === "full";
  const files = testFiles().filter(({ path, text }) => (isFull ? isDeep(path, text) : !path.endsWith(".deep.test.ts")));
  const shared = {
    alias: ownName(),
    env: { TEST_DEPTH: mode },
    server: { deps: { external: [/\/(packages|apps|bench)\/.*\/(dist|bin)\//] } },
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

/** A package that tests its public surface means its sources, those of each of its entries. */
function ownName(): { readonly find: RegExp; readonly replacement: string }[] {
  const { name, exports = {} } = JSON.parse(readFileSync("package.json", "utf8")) as {
    readonly name: string;
    readonly exports?: Readonly<Record<string, string | { readonly "espalier-source"?: string }>>;
  };
  return Object.entries(exports).flatMap(([entry, conditions]) => {
    const source = typeof conditions === "string" ? undefined : conditions["espalier-source"];
    const find = new RegExp(`^${name}${entry.slice(1)}$`, "u");
    return source === undefined ? [] : [{ find, replacement: join(process.cwd(), source) }];
  });
}
