import { systemScheduler } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished } from "vitest";
import { since } from "./deadlines.ts";
import { type Fleet, untilWhole } from "./fleet.ts";
import { areFeedsOwned, stateOf } from "./mesh-views.ts";
import type { RouterProcess } from "./router-process.ts";
import type { Traffic } from "./traffic.ts";

/** How often a load balancer asks for readiness. */
const probeMs = 50;

/** What a load balancer in front of the routers would send requests to. */
export function balance(routers: Map<string, RouterProcess>): () => readonly RouterProcess[] {
  const ready = new Set<RouterProcess>(routers.values());
  const probe = async (router: RouterProcess): Promise<void> => {
    const isReady = await fetch(`${router.url}/readyz`).then(
      ({ status }) => status === 200,
      () => false,
    );
    if (isReady) ready.add(router);
    else ready.delete(router);
  };
  onTestFinished(
    systemScheduler.every(probeMs, () => {
      for (const router of routers.values()) void probe(router);
    }),
  );
  return () => [...routers.values()].filter((router) => ready.has(router));
}

/**
 * Ends the routers one after the other and starts each again, while requests go on: others read its feeds at once, nobody takes
 * it for dead, and it is a member again before the next one goes.
 */
export async function restartEach(fleet: Fleet, routers: Map<string, RouterProcess>, traffic: Traffic): Promise<void> {
  const engines = fleet.sims.length;
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
}
