import { waitFor } from "@espalier/testing";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { since } from "./deadlines.ts";
import { startFleet, untilWhole } from "./fleet.ts";
import { areFeedsOwned, stateOf } from "./mesh-views.ts";
import type { RouterProcess } from "./router-process.ts";
import { pause, startTraffic } from "./traffic.ts";

const engines = 4;
const rig = createRig();
afterAll(() => rig.close());
/** How often a load balancer asks for readiness. */
const probeMs = 50;

/** What a load balancer in front of the routers would send requests to. */
function balance(routers: Map<string, RouterProcess>): () => readonly RouterProcess[] {
  const ready = new Set<RouterProcess>(routers.values());
  let isRunning = true;
  const watch = async (): Promise<void> => {
    while (isRunning) {
      for (const router of routers.values()) {
        const isReady = await fetch(`${router.url}/readyz`).then(
          ({ status }) => status === 200,
          () => false,
        );
        if (isReady) ready.add(router);
        else ready.delete(router);
      }
      await pause(probeMs);
    }
  };
  void watch();
  onTestFinished(() => {
    isRunning = false;
  });
  return () => [...routers.values()].filter((router) => ready.has(router));
}

test("three routers are restarted one after the other: no request fails, no stream is cut, and their feeds are read by others at once", async () => {
  const fleet = await startFleet(rig, { routers: 3, engines, speed: 5, flags: ["--drain-delay", "2s"] });
  const routers = new Map(fleet.routers.map((router) => [router.id, router]));
  const traffic = startTraffic({ routers: balance(routers), clients: 3, maxTokens: 60 });
  for (const [id, router] of [...routers]) {
    const others = [...routers.values()].filter((other) => other !== router);
    const before = traffic.completed;
    router.signal("SIGTERM");
    const left = since();
    await left.within(1_000, "feeds read by the others", () => areFeedsOwned(others, engines));
    expect(router.process.exitCode).toBeNull();
    expect(await router.exited).toBe(0);
    routers.delete(id);
    for (const other of others) {
      const hasLeft = async (): Promise<boolean> => ["left", undefined].includes(await stateOf(other, id));
      await waitFor(hasLeft, { what: `${id} that has left, as ${other.id} sees it` });
      const page = await other.metrics();
      expect(page.sum("espalier_mesh_member_changes_total", { state: "down" })).toBe(0);
    }
    const again = await fleet.start(id);
    await untilWhole([...others, again], engines);
    routers.set(id, again);
    await waitFor(() => traffic.completed > before + 5, { what: "more answers", deadlineMs: 20_000 });
  }
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  for (const router of fleet.routers) {
    expect(router.log().filter(({ msg }) => msg.includes("cut"))).toEqual([]);
  }
});
