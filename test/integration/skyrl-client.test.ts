import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, expect, test } from "vitest";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const run = promisify(execFile);
const script = fileURLToPath(new URL("fixtures/skyrl_rollout.py", import.meta.url));

test("SkyRL's own client rolls out and updates weights through a router, with the router as its only server", {
  timeout: 300_000,
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), "espalier-skyrl-"));
  rig.own(() => rm(folder, { recursive: true, force: true }));
  await run("python3", ["-m", "venv", folder]);
  const [python, pip] = ["python", "pip"].map((name) => join(folder, "bin", name)) as [string, string];
  // Its other dependencies, with torch among them, are for training.
  await run(pip, ["install", "--quiet", "--no-deps", "skyrl==0.3.0"]);
  await run(pip, ["install", "--quiet", "aiohttp"]);
  const sims = await rig.sims(2);
  const router = await rig.router({
    engines: sims.map(({ url }) => url),
    config: { rollouts: { port: 0 }, policy: "sticky" },
  });
  const { stdout } = await run(python, [script, router.router.rolloutsUrl ?? ""]);
  expect(JSON.parse(stdout)).toEqual({
    world_size: [2, 2],
    was_waiting: true,
    answers: [4, 4, 4],
    logprobs: [8, 8, 8, 8],
    reasons: ["length"],
  });
  for (const { breaker, state } of await router.engines()) expect([state, breaker.state]).toEqual(["up", "closed"]);
  const page = await router.metrics();
  const counted = (call: string) => page.sum("espalier_control_calls_total", { call, outcome: "succeeded" });
  expect(["pause", "resume", "collective_rpc", "sleep", "wake_up"].map(counted)).toEqual([2, 2, 6, 2, 4]);
  await router.untilIdle();
});
