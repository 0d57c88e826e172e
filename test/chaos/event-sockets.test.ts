import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { eventsOf } from "../integration/cache-rig.ts";
import { createRig, type Sim } from "../integration/rig.ts";
import { since } from "./deadlines.ts";
import { isDraining, setDraining } from "./engine-drain.ts";
import { startFaultProxy } from "./fault-proxy.ts";
import { startFleet } from "./fleet.ts";
import { learn } from "./learn.ts";
import type { RouterProcess } from "./router-process.ts";

const engines = 3;
const rig = createRig();
afterEach(() => rig.close());

test("with direct events each router reads every engine itself, and load and drains are shared all the same", async () => {
  const direct = await startFleet(rig, {
    routers: 2,
    engines,
    flags: ["--mesh-events", "direct"],
    areFeedsShared: false,
  });
  const [one, two] = direct.routers;
  await learn(direct);
  for (const router of direct.routers) {
    const page = await router.metrics();
    for (const { id } of direct.sims) {
      expect(page.sum("espalier_kv_feed_state", { feed: id })).toBeGreaterThan(0);
    }
    expect(page.sum("espalier_kv_feed_messages_total")).toBeGreaterThan(0);
    expect(await router.ask("/admin/mesh")).toMatchObject({ events: "direct", members: [{ state: "alive" }] });
  }
  await setDraining(one!, direct.sims[0]!.id, true);
  await since().within(500, "drain", () => isDraining(two!, direct.sims[0]!.id));
});

/** The events of each engine go through a proxy of their own. */
async function behindProxies(sims: readonly Sim[], resets: (() => void)[], ports: Map<number, boolean>) {
  const entries = [];
  for (const sim of sims) {
    const endpoints: string[] = [];
    const { port, replayPort } = await eventsOf(sim);
    for (const target of [Number(port), Number(replayPort)]) {
      const targetPort = (): number => (ports.get(target) === false ? 0 : target);
      const proxy = await startFaultProxy({ targetPort, fault: () => undefined });
      rig.own(() => proxy.close());
      resets.push(() => proxy.reset());
      ports.set(target, true);
      endpoints.push(`tcp://127.0.0.1:${proxy.port}`);
    }
    entries.push({ url: sim.url, "kv-events": { endpoint: endpoints[0], replay: endpoints[1] } });
  }
  const folder = mkdtempSync(join(tmpdir(), "espalier-chaos-"));
  rig.own(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "router.json");
  writeFileSync(path, JSON.stringify({ engines: entries }));
  return ["--config", path];
}

test("when the sockets of an engine's events are lost its feed is stale at once, at every router, and live again when they are back (1 s more where the machine is shared)", async () => {
  const resets: (() => void)[] = [];
  const ports = new Map<number, boolean>();
  const feeds = await startFleet(rig, {
    routers: 2,
    engines,
    engineFlags: (sims) => behindProxies(sims, resets, ports),
  });
  await learn(feeds);
  const stateAt = async (router: RouterProcess): Promise<readonly string[]> =>
    (await router.feeds()).map(({ state }) => state);
  const areAll = (state: string) => async (): Promise<boolean> => {
    const states = await Promise.all(feeds.routers.map(stateAt));
    return states.flat().every((each) => each === state);
  };
  for (const target of ports.keys()) ports.set(target, false);
  for (const reset of resets) reset();
  // Who reads along sees its own sockets at once, and what the facts are worth by what their owner says.
  const isNoneComplete = async (): Promise<boolean> => {
    const views = await Promise.all(feeds.routers.map((router) => router.mesh()));
    return views.flatMap(({ targets }) => targets).every(({ quality }) => quality !== "complete");
  };
  const isStale = areAll("stale");
  await since().within(50, "stale feeds", async () => (await isStale()) && (await isNoneComplete()));
  for (const target of ports.keys()) ports.set(target, true);
  await waitFor(areAll("live"), { what: "live feeds", deadlineMs: 20_000 });
  await learn(feeds);
});
