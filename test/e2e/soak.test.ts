import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { temporaryFile } from "./files.ts";
import { start } from "./program.ts";

test("a short soak has every change of the fleet, loses nothing, and leaves a plot", async () => {
  const plot = temporaryFile("soak.svg", "");
  const sizes = ["--duration", "8s", "--churn", "1s", "--routers", "2", "--engines", "2", "--clients", "3"];
  const script = "scripts/bench.mjs";
  const { code, stdout, stderr } = await start(["soak", "--json", "--plot", plot, ...sizes], { script }).ended;
  const { metrics, failures, params } = JSON.parse(stdout);
  expect([failures, code, params.judged], stderr).toEqual([[], 0, false]);
  expect(metrics).toMatchObject({ failed_requests: 0, digest_mismatches: 0, engines_replaced: expect.any(Number) });
  expect(metrics.engines_replaced + metrics.routers_restarted).toBeGreaterThan(0);
  expect(metrics.completed).toBeGreaterThan(0);
  expect(existsSync(plot) && readFileSync(plot, "utf8")).toContain("router-2");
});
