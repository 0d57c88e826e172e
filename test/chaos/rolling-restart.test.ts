import { afterAll, expect, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { startFleet } from "./fleet.ts";
import { balance, restartEach } from "./rolling.ts";
import { startTraffic } from "./traffic.ts";

const engines = 4;
const rig = createRig();
afterAll(() => rig.close());

test("three routers are restarted one after the other: no request fails, no stream is cut, and their feeds are read by others at once", async () => {
  const fleet = await startFleet(rig, { routers: 3, engines, speed: 5, flags: ["--drain-delay", "2s"] });
  const routers = new Map(fleet.routers.map((router) => [router.id, router]));
  const traffic = startTraffic({ routers: balance(routers), clients: 3, maxTokens: 60 });
  await restartEach(fleet, routers, traffic);
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  for (const router of fleet.routers) {
    expect(router.log().filter(({ msg }) => msg.includes("cut"))).toEqual([]);
  }
});
