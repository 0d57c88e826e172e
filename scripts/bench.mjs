// `npm run bench -- NAME [--json]`: a benchmark. The command that it measures is the one that users install.
import { build } from "./build.mjs";
import { setUp } from "./set-up.mjs";

await setUp();
build();
process.env.BENCH_PACKED = "1";
await import("../bench/src/main.ts");
