import { afterAll, beforeAll, expect, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { since } from "./deadlines.ts";
import { type Fleet, startFleet, untilWhole } from "./fleet.ts";
import { areFeedsOwned, haveEqualFacts, stateOf } from "./mesh-views.ts";
import type { RouterProcess } from "./router-process.ts";
import { startTraffic } from "./traffic.ts";

const engines = 4;
const rig = createRig();
afterAll(() => rig.close());
let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet(rig, { routers: 3, engines });
}, 120_000);

test("over a link that is slow, delayed, or heard in one direction only, all learn the same and no request fails", async () => {
  const ids = fleet.routers.map(({ id }) => id) as [string, string, string];
  const traffic = startTraffic({ routers: () => fleet.routers });
  fleet.network.set(ids[0], ids[1], { kind: "delay", delayMs: 80 });
  fleet.network.set(ids[1], ids[2], { kind: "slow", bytesPerS: 20_000 });
  await since().within(10_000, "thirty answers", async () => traffic.completed >= 30);
  // What the first says still reaches the third by way of the second.
  fleet.network.setOneWay(ids[0], ids[2], { kind: "black-hole" });
  const before = traffic.completed;
  await since().within(10_000, "thirty more", async () => traffic.completed >= before + 30);
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  await since().within(5_000, "equal digests in spite of it", () => haveEqualFacts(fleet.routers));
  for (const router of fleet.routers) {
    expect((await router.metrics()).sum("espalier_mesh_member_changes_total", { state: "down" })).toBe(0);
  }
  fleet.network.heal();
  await untilWhole(fleet.routers, engines);
});

test("both sides of a partition route and learn; 5 s after it heals, their digests are equal (1 s more where the machine is shared)", async () => {
  const [one, two, three] = fleet.routers as [RouterProcess, RouterProcess, RouterProcess];
  const traffic = startTraffic({ routers: () => fleet.routers });
  for (const other of [two, three]) fleet.network.set(one.id, other.id, { kind: "black-hole" });
  const parted = since();
  await Promise.all([
    parted.within(6_000, "removal of the one", async () => (await stateOf(two, one.id)) === undefined),
    parted.within(6_000, "removal of the others", async () => (await one.mesh()).members.length === 0),
  ]);
  await since().within(1_000, "feeds read by the one", () => areFeedsOwned([one], engines));
  await since().within(1_000, "feeds read by the others", () => areFeedsOwned([two, three], engines));
  const before = traffic.completed;
  await since().within(5_000, "ten more answers", async () => traffic.completed >= before + 10);
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  const [digest, otherDigest] = await Promise.all([one, two].map(async (router) => (await router.mesh()).facts.blocks));
  expect(digest).toBeGreaterThan(0);
  expect(otherDigest).toBeGreaterThan(0);

  fleet.network.heal();
  const healed = since();
  await healed.within(5_000, "equal digests and one reader for each feed", async () => {
    const members = await Promise.all(fleet.routers.map(async (router) => (await router.mesh()).members));
    const isWhole = members.every((list) => list.filter(({ isLinked }) => isLinked).length === 2);
    return isWhole && (await areFeedsOwned(fleet.routers, engines)) && (await haveEqualFacts(fleet.routers));
  });
});

test("a router whose peers are all killed goes on alone, and no request through it fails", async () => {
  const [left, ...others] = fleet.routers;
  const traffic = startTraffic({ routers: () => [left!], clients: 3 });
  await since().within(5_000, "ten answers", async () => traffic.completed >= 10);
  await Promise.all(others.map((router) => router.kill()));
  await since().within(2_000, "feeds read by the one that is left", () => areFeedsOwned([left!], engines));
  const before = traffic.completed;
  await since().within(10_000, "thirty more answers", async () => traffic.completed >= before + 30);
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  expect((await fetch(`${left!.url}/readyz`)).status).toBe(200);
});
