import { afterAll, beforeAll, expect, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { since } from "./deadlines.ts";
import { type Fleet, startFleet, untilWhole } from "./fleet.ts";
import { openStreams } from "./load.ts";
import { areFeedsOwned, busiestReader, haveEqualFacts, loadOf, stateOf } from "./mesh-views.ts";
import type { RouterProcess } from "./router-process.ts";
import { startTraffic } from "./traffic.ts";

const engines = 6;
const rig = createRig();
afterAll(() => rig.close());
let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet(rig, { routers: 3, engines, speed: 3 });
}, 120_000);

interface Silence {
  readonly begin: (fleet: Fleet, victim: RouterProcess) => void;
  readonly end: (fleet: Fleet, victim: RouterProcess) => void;
}

const stopped: Silence = {
  begin: (_, victim) => victim.signal("SIGSTOP"),
  end: (_, victim) => victim.signal("SIGCONT"),
};

const blackHole: Silence = {
  begin({ network, routers }, victim) {
    for (const { id } of routers) if (id !== victim.id) network.set(id, victim.id, { kind: "black-hole" });
  },
  end: ({ network }) => network.heal(),
};

/** The deadlines of a router that nothing is heard of, as each of the others sees it. */
async function expectForgotten(victim: RouterProcess, others: readonly RouterProcess[]): Promise<void> {
  const silent = since();
  await Promise.all(
    others.map(async (other) => {
      await silent.within(1_500, "lapse of the load lease", async () => (await loadOf(other, victim.id)) === 0);
      await silent.within(2_000, "suspicion", async () => (await stateOf(other, victim.id)) !== "alive");
      await silent.within(2_000, "end of the link", async () => !(await isLinked(other, victim.id)));
    }),
  );
  await silent.within(4_000, "feeds read again", () => areFeedsOwned(others, engines));
  await Promise.all(
    others.map((other) => silent.within(6_000, "removal", async () => (await stateOf(other, victim.id)) === undefined)),
  );
}

async function isLinked(viewer: RouterProcess, router: string): Promise<boolean> {
  return (await viewer.mesh()).members.some((member) => member.router === router && member.isLinked);
}

const downs = async (router: RouterProcess): Promise<number> =>
  (await router.metrics()).sum("espalier_mesh_member_changes_total", { state: "down" });

test("a router that is stopped until the others have forgotten it comes back, and nobody else is evicted", async () => {
  const { victim, others } = await busiestReader(fleet.routers);
  const pauses = async (): Promise<number> => (await victim.metrics()).sum("espalier_mesh_pauses_total");
  const before = { victim: await downs(victim), others: await Promise.all(others.map(downs)), pauses: await pauses() };
  victim.signal("SIGSTOP");
  const silent = since();
  for (const other of others)
    await silent.within(6_000, "removal", async () => (await stateOf(other, victim.id)) === undefined);
  victim.signal("SIGCONT");
  await untilWhole(fleet.routers, engines);
  // It held nobody for dead, although it had heard of nobody for so long; of the others each at most gave up on it.
  expect(await downs(victim)).toBe(before.victim);
  expect(await pauses()).toBeGreaterThan(before.pauses);
  for (const [index, other] of others.entries()) {
    expect(await downs(other)).toBeLessThanOrEqual(before.others[index]! + 1);
    const ended = other.log().filter(({ msg, why }) => msg === "router link closed" && why === "silent");
    expect(ended.filter(({ router }) => router !== victim.id)).toEqual([]);
  }
});

test.each([
  ["behind a black hole", blackHole],
  ["stopped with SIGSTOP", stopped],
] as const)(
  "a router %s: its load lapses in 1.5 s, it is suspected and unlinked in 2 s, its feeds are read again in 4 s, it is forgotten in 6 s (1 s more each where the machine is shared)",
  async (_, silence) => {
    const { victim, others } = await busiestReader(fleet.routers);
    const streams = await openStreams(victim, 2);
    for (const other of others) {
      await since().within(1_000, "load of the victim", async () => (await loadOf(other, victim.id)) === 2);
    }
    const before = await Promise.all(others.map(downs));
    const traffic = startTraffic({ routers: () => others });
    silence.begin(fleet, victim);
    await expectForgotten(victim, others);
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
    expect(await Promise.all(others.map(downs))).toEqual(before.map((count) => count + 1));

    for (const stream of streams) stream.destroy();
    silence.end(fleet, victim);
    await untilWhole(fleet.routers, engines);
    await since().within(5_000, "equal digests", () => haveEqualFacts(fleet.routers));
  },
);
