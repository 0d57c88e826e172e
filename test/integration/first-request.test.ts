import { silentLogger } from "@espalier/core";
import { createRouter, loadConfig } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

function routerBeside(engines: readonly string[], hasOthers: boolean) {
  const text = JSON.stringify({ health: { interval: "100ms" }, listen: { port: 0 }, admin: { port: 0 }, engines });
  const config = loadConfig({ file: { path: "router.yaml", text } });
  const router = createRouter({ config, logger: silentLogger, hasOthers });
  rig.own(() => router.stop());
  return router;
}

test("a router beside others lets clients in once it can serve them, so that its first request is answered", async () => {
  const [sim] = await rig.sims(1);
  await sim!.fault({ kind: "unhealthy" });
  const router = routerBeside([sim!.url], true);
  const started = router.start();
  await waitFor(() => router.adminUrl !== "", { what: "the admin listener" });
  const readyz = async () => (await fetch(`${router.adminUrl}/readyz`)).status;
  expect([await readyz(), router.url]).toEqual([503, ""]);
  await sim!.clearFaults();
  await started;
  const { status } = await post(`${router.url}/v1/chat/completions`, chat());
  expect(status).toBe(200);
});

test("without others, and without engines, there is nothing to wait for", async () => {
  const alone = routerBeside(["http://127.0.0.1:9"], false);
  const withoutEngines = routerBeside([], true);
  await Promise.all([alone.start(), withoutEngines.start()]);
  for (const { url } of [alone, withoutEngines]) {
    const { status } = await post(`${url}/v1/chat/completions`, chat());
    expect(status).toBe(503);
  }
});
