import { existsSync, readdirSync, readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

/** Workspace packages are read from their sources in tests, so a test never sees a stale build. */
const conditions = ["espalier-source", "node", "import", "module", "default"];
const shared = { resolve: { conditions }, ssr: { resolve: { conditions } } };

/** The folders with the tests of one package each. */
const unitFolders = ["packages", "apps"]
  .flatMap((group) => readdirSync(new URL(group, import.meta.url)).map((name) => `${group}/${name}/test`))
  .concat("bench/test")
  .filter((folder) => existsSync(new URL(folder, import.meta.url)));

/**
 * What makes a test need a process of its own: it puts something in the place of modules or globals, which others would
 * meet, or it measures time or memory, of which others leave something behind.
 */
const wantsToBeAlone =
  /\bvi\.(mock|doMock|resetModules|stubGlobal)\(|\bprocess\.(memoryUsage|cpuUsage)\(|\bperformance\.now\(|\bsystemClock\.nowMs\(\) - |--expose-gc/;

const lonelyTests = unitFolders
  .flatMap((folder) =>
    readdirSync(new URL(folder, import.meta.url), { recursive: true, encoding: "utf8" }).map(
      (file) => `${folder}/${file}`,
    ),
  )
  .filter((file) => file.endsWith(".test.ts"))
  .filter((file) => wantsToBeAlone.test(readFileSync(new URL(file, import.meta.url), "utf8")));

export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      {
        ...shared,
        test: {
          name: "unit",
          include: unitFolders.map((folder) => `${folder}/**/*.test.ts`),
          exclude: lonelyTests,
          testTimeout: 20_000,
          // One process after the other would load the same modules for every file: a third of all the work.
          isolate: false,
        },
      },
      { ...shared, test: { name: "unit-alone", include: lonelyTests, testTimeout: 20_000 } },
      { ...shared, test: { name: "tidy", include: ["test/tidy/**/*.test.ts"], testTimeout: 30_000 } },
      { ...shared, test: { name: "conformance", include: ["test/conformance/**/*.test.ts"], testTimeout: 30_000 } },
      { ...shared, test: { name: "integration", include: ["test/integration/**/*.test.ts"], testTimeout: 30_000 } },
      {
        ...shared,
        test: { name: "convergence", include: ["test/convergence/**/*.test.ts"], testTimeout: 60_000 },
      },
      {
        ...shared,
        test: {
          name: "simulation",
          include: ["test/simulation/**/*.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 60_000,
        },
      },
      {
        ...shared,
        // Deadlines of real programs: nothing else runs beside them.
        test: {
          name: "chaos",
          include: ["test/{chaos,calibration}/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          fileParallelism: false,
          isolate: false,
          sequence: { groupOrder: 1 },
        },
      },
      {
        ...shared,
        // Programs whose start takes most of the time, on both processors; nothing but each other runs beside them.
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          testTimeout: 120_000,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
