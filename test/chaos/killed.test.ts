import { waitFor } from "@espalier/testing";
import { afterAll, expect, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { since } from "./deadlines.ts";
import { startFleet, untilWhole } from "./fleet.ts";
import { openStreams } from "./load.ts";
import { areFeedsOwned, busiestReader, loadOf, stateOf } from "./mesh-views.ts";
import { startTraffic } from "./traffic.ts";

const engines = 6;
const rig = createRig();
afterAll(() => rig.close());

test("a router that is killed is noticed and its load gone in 1 s, and its feeds are read again 1 s later (1 s more each where the machine is shared)", async () => {
  const fleet = await startFleet(rig, { routers: 3, engines, speed: 3 });
  const { victim, others } = await busiestReader(fleet.routers);
  const traffic = startTraffic({ routers: () => others });
  await openStreams(victim, 3);
  for (const other of others) {
    await since().within(1_000, "load of the victim", async () => (await loadOf(other, victim.id)) === 3);
  }

  const killed = since();
  await victim.kill();
  await Promise.all(
    others.map(async (other) => {
      await killed.within(1_000, "death noticed", async () => (await stateOf(other, victim.id)) === "down");
      await killed.within(1_000, "load gone", async () => (await loadOf(other, victim.id)) === 0);
    }),
  );
  await killed.within(2_000, "feeds read again", () => areFeedsOwned(others, engines));
  await waitFor(() => traffic.completed > 10, { what: "answers from the others", deadlineMs: 20_000 });
  await traffic.stop();
  expect(traffic.failures).toEqual([]);

  const again = await fleet.start(victim.id);
  await untilWhole([...others, again], engines);
});
