import { defineConfig } from "vitest/config";

const conditions = ["espalier-source", "node", "import", "module", "default"];
export default defineConfig({
  root: "/work/main",
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    pool: "forks",
    execArgv: process.env.PROF ? ["--cpu-prof", "--cpu-prof-dir=/tmp/prof"] : [],
    include: ["test/simulation/**/*.test.ts"],
    testTimeout: 60000,
  },
});
