import { readdirSync, readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

/** Workspace packages are read from their sources in tests, so a test never sees a stale build. */
const conditions = ["espalier-source", "node", "import", "module", "default"];
const shared = { resolve: { conditions }, ssr: { resolve: { conditions } } };

/** Packages that do nothing of themselves: without sockets, processes and real timers, a test leaves nothing behind. */
const purePackages = [
  ...["admission", "common", "config", "disaggregation", "engine-model", "openai", "policies", "prefix-index"],
  ...["replication", "routing", "simulator", "tokenizer", "workload"],
];

/**
 * What makes a test of theirs need a process of its own all the same: it puts something in the place of modules or
 * globals, which others would meet, it starts threads, or it measures time or memory.
 */
const wantsToBeAlone =
  /\bvi\.(mock|doMock|resetModules|stubGlobal)\(|TokenizerPool\b|\bprocess\.(memoryUsage|cpuUsage)\(|\bsystemClock\.nowMs\(/;

const unitTests = ["{packages,apps}/*/test/**/*.test.ts", "bench/test/**/*.test.ts"];
const pureTests = purePackages.flatMap((name) => {
  const folder = `packages/${name}/test`;
  return readdirSync(new URL(folder, import.meta.url), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".test.ts"))
    .map((file) => `${folder}/${file}`)
    .filter((file) => !wantsToBeAlone.test(readFileSync(new URL(file, import.meta.url), "utf8")));
});

export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      // Processes that live on, for one of their own would load the same modules for every file: a third of all the work.
      { ...shared, test: { name: "unit", include: pureTests, testTimeout: 20_000, isolate: false } },
      { ...shared, test: { name: "unit-alone", include: unitTests, exclude: pureTests, testTimeout: 20_000 } },
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
        // Programs, whose start is most of the work: two files at a time, and nothing else beside them.
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
