import { defineConfig } from "vitest/config";

/** Workspace packages are read from their sources in tests, so a test never sees a stale build. */
const conditions = ["espalier-source", "node", "import", "default"];
const shared = { resolve: { conditions }, ssr: { resolve: { conditions } } };

export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      {
        ...shared,
        test: {
          name: "unit",
          include: ["{packages,apps}/*/test/**/*.test.ts", "bench/test/**/*.test.ts"],
          testTimeout: 20_000,
        },
      },
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
        test: { name: "deploy", include: ["test/deploy/**/*.test.ts"], testTimeout: 120_000, fileParallelism: false },
      },
      {
        ...shared,
        test: { name: "e2e", include: ["test/e2e/**/*.test.ts"], testTimeout: 120_000, fileParallelism: false },
      },
    ],
  },
});
