import { startEngineSim } from "@espalier/engine-sim";
import { createRouter, loadConfig } from "@espalier/server";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { registerTop, type TopFrame } from "../src/commands/top.ts";
import { registerTry, type TryReport } from "../src/commands/try.ts";
import { runCommand } from "./run-command.ts";

/** Routers of a mesh before simulated engines. */
async function startFleet(count: number): Promise<readonly string[]> {
  // Slow enough that the prompt costs far more to compute again than a busy machine adds to anything.
  const sim = await startEngineSim({ engines: 3, speed: 10, models: ["tiny"] });
  onTestFinished(() => sim.stop());
  const adminUrls: string[] = [];
  let seeds: readonly string[] = [];
  for (let at = 0; at < count; at++) {
    const text = JSON.stringify({
      ...{ listen: { port: 0 }, admin: { port: 0 }, engines: sim.engines.map(({ url }) => url) },
      mesh: { backend: "peers", port: 0, "router-id": `r${at}`, seeds },
    });
    const config = loadConfig({ file: { path: "r.yaml", text } });
    const router = createRouter({ config, logger: createRecordingLogger(), dashboard: { files: async () => [] } });
    await router.start();
    onTestFinished(() => router.stop());
    if (router.meshAddress) seeds = [router.meshAddress];
    adminUrls.push(router.adminUrl);
  }
  const pages = async <Page>(path: string): Promise<readonly Page[]> =>
    Promise.all(adminUrls.map(async (url) => (await (await fetch(url + path)).json()) as Page));
  await waitFor(
    async () => {
      const states = await pages<{ readonly peers: object[]; readonly usableEngines: number }>("/admin/status");
      const meshes = await pages<{ readonly load: readonly { readonly leaseRemainingMs: number }[] }>("/admin/mesh");
      // A router that was just found has not sent all that it knows.
      const isMet = meshes.every(
        ({ load }) => load.filter(({ leaseRemainingMs }) => leaseRemainingMs > 0).length >= count - 1,
      );
      return isMet && states.every(({ peers, usableEngines }) => peers.length === count - 1 && usableEngines === 3);
    },
    { what: "routers that share their load, and all engines" },
  );
  return adminUrls;
}

test("try finds the other router by the first one, and both turns meet one engine", async () => {
  const [admin] = await startFleet(2);
  const { stdout, error } = await runCommand(registerTry, "try", "--json", "--admin", admin!);
  expect(error).toBeUndefined();
  const { turns, routers, says } = JSON.parse(stdout) as TryReport;
  const [first, second] = turns;
  expect([routers, new Set(turns.map(({ router }) => router)).size]).toEqual([2, 2]);
  expect(second.engine).toBe(first.engine);
  expect([first.cachedTokens, first.isReported]).toEqual([0, true]);
  expect(second.cachedTokens).toBeGreaterThan(0.9 * first.promptTokens);
  expect(says).toMatch(
    /^turn 2 came in at another router and met the same engine: [\d,]+ of [\d,]+ tokens were cached$/,
  );
});

test("top shows every router and engine of a fleet, and what was asked of them", async () => {
  const [admin] = await startFleet(2);
  const shown = runCommand(registerTop, "top", "--once", "--json", "--admin", admin!);
  const { routers, engines } = JSON.parse((await shown).stdout) as TopFrame;
  expect(routers).toMatchObject([
    { router: "r0", state: "ready", inFlight: 0, requestsPerSecond: 0 },
    { router: "r1", state: "ready" },
  ]);
  expect(engines.map(({ state, inFlight }) => [state, inFlight])).toEqual(Array(3).fill(["up", { r0: 0, r1: 0 }]));
});
