import { hasRedisServer, startRedisServer, waitFor } from "@espalier/testing";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { isDraining, setDraining } from "./engine-drain.ts";
import { type FleetOptions, startFleet, untilWhole } from "./fleet.ts";
import { haveEqualFacts } from "./mesh-views.ts";
import { balance, restartEach } from "./rolling.ts";
import type { RouterProcess } from "./router-process.ts";
import { startTraffic, type Traffic } from "./traffic.ts";

/** Run by `npm run test:chaos -- --older DIR`: the folder where another commit is checked out. */
const older = process.env.ESPALIER_OLDER ?? "";
const newer = ".";
const engines = 4;
/** Twelve programs are started one after the other, some on machines that do other work. */
const timeoutMs = 300_000;
const rig = createRig();
afterAll(() => rig.close());

async function startTier(checkout: () => string, options: Partial<FleetOptions> = {}) {
  const flags = ["--drain-delay", "5s", ...(options.flags ?? [])];
  const fleet = await startFleet(rig, { routers: 3, engines, speed: 5, ...options, flags, checkout });
  const routers = new Map(fleet.routers.map((router) => [router.id, router]));
  const traffic = startTraffic({ routers: balance(routers), clients: 3, maxTokens: 60 });
  return { fleet, routers, traffic };
}

async function expectNoFailure(traffic: Traffic, routers: Iterable<RouterProcess>): Promise<void> {
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  expect(traffic.completed).toBeGreaterThan(50);
  for (const router of routers) expect(router.log().filter(({ msg }) => msg.includes("cut"))).toEqual([]);
}

async function meetsAny(router: RouterProcess, others: ReadonlyMap<string, RouterProcess>): Promise<boolean> {
  return (await router.mesh()).members.some(({ router: id, state }) => others.has(id) && state === "alive");
}

test(
  "three routers are replaced by those of this release, and back: no request fails, no stream is cut, a drained engine stays drained",
  async () => {
    let checkout = older;
    const { fleet, routers, traffic } = await startTier(() => checkout);
    const ran = new Set(routers.values());
    const { id: drained } = fleet.sims[0]!;
    await setDraining(fleet.routers[0]!, drained, true);
    for (checkout of [newer, older]) {
      await restartEach(fleet, routers, traffic);
      for (const router of routers.values()) {
        ran.add(router);
        await waitFor(() => isDraining(router, drained), { what: `${drained} drained at ${router.id}` });
      }
      await waitFor(() => haveEqualFacts([...routers.values()]), { what: "equal facts", deadlineMs: 30_000 });
    }
    await expectNoFailure(traffic, ran);
  },
  timeoutMs,
);

// Where the other release keeps something else in Redis, routers of both share nothing meanwhile, and the newer ones say so.
test.runIf(hasRedisServer("an upgrade with Redis"))(
  "with Redis likewise: no request fails, and routers of both releases are whole among themselves",
  async () => {
    const redis = await startRedisServer();
    onTestFinished(() => redis.close());
    let checkout = older;
    const flags = ["--mesh-backend", "redis", "--mesh-redis-url", redis.url];
    const { fleet, routers, traffic } = await startTier(() => checkout, { flags });
    const ran = new Set(routers.values());
    for (checkout of [newer, older]) {
      for (const [id, router] of [...routers]) {
        const before = traffic.completed;
        router.signal("SIGTERM");
        expect(await router.exited).toBe(0);
        routers.delete(id);
        const again = await fleet.start(id);
        ran.add(again);
        await waitFor(async () => (await fetch(`${again.url}/readyz`)).ok, { what: `${id} ready`, deadlineMs: 30_000 });
        if (checkout === newer && routers.size > 0 && !(await meetsAny(again, routers))) {
          const says = (): boolean => again.log().some(({ msg }) => msg.includes("nothing is shared"));
          await waitFor(says, { what: "word of routers that nothing is shared with" });
        }
        routers.set(id, again);
        await waitFor(() => traffic.completed > before + 5, { what: "more answers", deadlineMs: 20_000 });
      }
      await untilWhole([...routers.values()], engines);
    }
    await expectNoFailure(traffic, ran);
  },
  timeoutMs,
);
