import { test } from "vitest";
import { runSeed } from "./run-seed.ts";
import { readSeedRequest } from "./seeds.ts";

const from = Number(process.env.FROM ?? 1),
  n = Number(process.env.N ?? 10);
const only = process.env.ONLY
  ? readSeedRequest(JSON.stringify({ first: 0, count: 0, step: 1, only: process.env.ONLY, reportFile: "" })).only
  : undefined;
test("scratch", async () => {
  for (let seed = from; seed < from + n; seed++) {
    const t0 = performance.now();
    const o = await runSeed(seed, {
      ...(only ? { only } : {}),
      ...(process.env.TRACE ? { trace: (l: string) => console.log(l) } : {}),
    });
    if (o.error) console.log(seed, "FAIL", o.kinds.join(), o.error.slice(0, 900), "\n" + o.command);
    else
      console.log(
        seed,
        "ok",
        o.hash,
        Math.round(o.convergedMs!),
        `${Math.round(performance.now() - t0)}ms`,
        process.env.V ? JSON.stringify(o.counts) : "",
      );
  }
}, 1e7);
