import { fileURLToPath } from "node:url";
import type { ProgramOptions } from "espalier-router";

/** The command as it is packed, which `npm run bench` has built before; tests of benchmarks run it from its sources. */
export const routerProgram: ProgramOptions =
  process.env.BENCH_PACKED === "1"
    ? { program: fileURLToPath(new URL("../../../apps/router/dist/bundle/main.js", import.meta.url)) }
    : {};
