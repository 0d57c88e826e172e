import { defineConfig } from "vitest/config";

if (Number.parseInt(process.versions.node, 10) < 24)
  throw new Error(`Tests need Node 24 or newer; this is ${process.versions.node}. \`npm test -- FILE\` brings one.`);

/**
 * Tests over the whole tree and over running programs. Node itself loads the sources, as it does for users. Packages' own
 * tests are run by turbo with vitest.package.ts; `unit` is for a file by itself.
 */
const shared = {
  server: { deps: { external: [/\/(?:(?:packages|apps)\/[^/]+|bench)\/(?:src|bin)\//] } },
  isolate: false,
  // As long as `waitFor` waits: a second, which Vitest waits, is short for programs on a busy machine.
  expect: { poll: { timeout: 30_000 } },
};

/** Of each capability one suite, which `npm test` runs; the others are run by `npm run test:all`. */
const gate = [
  "adapters",
  "admin",
  "admission",
  "api-keys",
  "bad-bodies",
  "bad-http",
  "bodies-in-flight",
  "breaker",
  "client-abort",
  "connections",
  "cors",
  "dashboard",
  "disaggregation",
  "drain",
  "endpoint-picker",
  "extensions",
  "forward-paths",
  "half-close",
  "headers",
  "health-panic",
  "kv-events-sources",
  "mesh-load",
  "mesh-sessions",
  "models",
  "own-headers",
  "pipelining",
  "policies",
  "prefix-conversations",
  "reload",
  "responses",
  "retries",
  "tls",
  "transfer-fields",
  "usage",
].map((capability) => `test/integration/${capability}.test.ts`);

/** Times of real programs, which whatever else runs makes longer. */
const measured = ["test/calibration/calibration.test.ts", "test/chaos/latency.test.ts"];

/** Whole programs, which take seconds to start, and ten times as long on a machine that others use. */
const programs = { ...shared, isolate: true, testTimeout: 240_000, hookTimeout: 240_000 };

export default defineConfig({
  test: {
    // Programs wait more than they compute.
    maxWorkers: 3,
    projects: [
      {
        test: {
          name: "unit",
          setupFiles: ["vitest.seed.ts"],
          include: ["{packages,apps}/*/test/**/*.test.ts", "bench/test/**/*.test.ts"],
          testTimeout: 120_000,
        },
      },
      { test: { ...shared, name: "tidy", include: ["test/tidy/**/*.test.ts"], testTimeout: 120_000 } },
      { test: { ...shared, name: "gate", include: gate, testTimeout: 120_000 } },
      {
        test: {
          ...shared,
          name: "integration",
          include: ["test/integration/**/*.test.ts", "test/conformance/**/*.test.ts"],
          exclude: gate,
          testTimeout: 120_000,
        },
      },
      { test: { ...shared, name: "convergence", include: ["test/convergence/**/*.test.ts"], testTimeout: 120_000 } },
      {
        test: {
          ...shared,
          name: "simulation",
          include: ["test/simulation/**/*.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 60_000,
        },
      },
      { test: { ...programs, name: "deploy", include: ["test/deploy/**/*.test.ts"] } },
      {
        test: {
          ...programs,
          name: "e2e",
          include: ["test/e2e/**/*.test.ts", "test/calibration/cached-shares.test.ts"],
        },
      },
      {
        test: {
          ...programs,
          isolate: false,
          name: "chaos",
          include: ["test/chaos/**/*.test.ts"],
          // The one needs another release: `npm run test:chaos -- --older DIR`.
          exclude: [...(process.env.ESPALIER_OLDER ? [] : ["test/chaos/upgrade.test.ts"]), ...measured],
        },
      },
      {
        // Times of real programs: nothing else runs beside them.
        test: {
          ...programs,
          isolate: false,
          fileParallelism: false,
          name: "measured",
          include: measured,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
