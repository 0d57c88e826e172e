import { hasRedisServer, startRedisServer } from "@espalier/testing";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { tellChaos } from "./chaos-report.ts";
import { since } from "./deadlines.ts";
import { startFleet, untilWhole } from "./fleet.ts";
import { haveEqualFacts } from "./mesh-views.ts";
import { startTraffic } from "./traffic.ts";

const engines = 3;
const rig = createRig();
afterAll(() => rig.close());

test.skipIf(!hasRedisServer("chaos with Redis"))(
  "Redis is killed and comes back empty: no request fails, and the routers share again",
  async () => {
    const redis = await startRedisServer();
    onTestFinished(() => redis.close());
    const fleet = await startFleet(rig, {
      routers: 2,
      engines,
      flags: ["--mesh-backend", "redis", "--mesh-redis-url", redis.url],
    });
    const traffic = startTraffic({ routers: () => fleet.routers });
    const more = async (count: number): Promise<void> => {
      const before = traffic.completed;
      await since().within(10_000, "more answers", async () => traffic.completed >= before + count);
    };
    expect((await fleet.routers[0]!.mesh()).backend).toBe("redis");
    await more(20);
    tellChaos({ fault: "Redis: SIGKILL" });
    await redis.kill();
    await more(60);
    for (const router of fleet.routers) expect((await fetch(`${router.url}/readyz`)).status).toBe(200);
    await redis.restart();
    await more(20);
    await untilWhole(fleet.routers, engines);
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
    await since().within(5_000, "equal digests", () => haveEqualFacts(fleet.routers));
  },
);
