import { systemClock, systemScheduler } from "@espalier/core";
import { createLoadClient } from "@espalier/simulator";
import { expect, onTestFinished, test, vi } from "vitest";
import { type MeshFleet, type MeshFleetOptions, startMeshFleet } from "../src/support/mesh-fleet.ts";
import { createConversations } from "../src/turns/conversations.ts";
import { measureTwoTurns, type TwoTurnSizes } from "../src/turns/measure-two-turns.ts";
import { runTwoTurns } from "../src/turns/run-two-turns.ts";

// Fleets are processes of what has been built; here they run from the sources, in this process.
vi.mock(import("espalier-router"), async (original) => {
  const { startEnginesHere, startRoutersHere } = await import("./in-process-fleet.ts");
  return { ...(await original()), startLocalEngines: startEnginesHere, startRouters: startRoutersHere };
});

const ports = { clock: systemClock, scheduler: systemScheduler };
const engines = { count: 4, preset: "h100-32b-tp2", model: "bench-model", speed: 50, port: 0, kvEvents: false };

async function start(more: Partial<MeshFleetOptions>): Promise<MeshFleet> {
  const fleet = await startMeshFleet({ engines, routers: 2, sharing: "mesh", policy: "cache_aware", ...more }, ports);
  onTestFinished(() => fleet.stop());
  return fleet;
}

const tinySizes: TwoTurnSizes = {
  engines: 4,
  speed: 50,
  conversations: 12,
  warmUpConversations: 4,
  ratePerSecond: 60,
  waitMs: 400,
  sweepMs: [500],
};

test("one small run measures every kind of fleet, and the mesh keeps conversations at their engines", async () => {
  const lines: string[] = [];
  const note = (line: string): void => void lines.push(line);
  const { mesh, withoutMesh, sweep } = await measureTwoTurns({ sizes: tinySizes, seed: 1, ports, note });
  expect(mesh.same_engine_share).toBeGreaterThan(0.8);
  expect(mesh.same_engine_share_3_routers).toBeGreaterThan(0.8);
  expect(mesh.events_same_engine_share).toBeGreaterThan(0.8);
  expect(mesh.after_kill_same_engine_share).toBeGreaterThan(0.8);
  expect(withoutMesh.same_engine_share).toBeLessThan(0.8);
  expect(Object.keys(sweep)).toEqual(["400", "500"]);
  const noRedis = lines.some((line) => line.includes("redis-server is not installed"));
  expect(mesh.redis_same_engine_share === undefined).toBe(noRedis);
  for (const [name, value] of Object.entries({ ...mesh, ...withoutMesh })) {
    expect(value, name).toSatisfy(Number.isFinite);
  }
  expect(mesh.cpu_us_per_request).toBeGreaterThan(0);
  expect(lines.filter((line) => line.includes("3 routers, mesh"))).toHaveLength(2);
}, 90_000);

test("a fleet starts with all routers linked, and a router that is killed is gone for good", async () => {
  const fleet = await start({ routers: 3 });
  expect(fleet.routers).toHaveLength(3);
  for (const { adminUrl } of fleet.routers) {
    const { members } = (await (await fetch(`${adminUrl}/admin/mesh`)).json()) as {
      members: readonly { isLinked: boolean }[];
    };
    expect(members.map(({ isLinked }) => isLinked)).toEqual([true, true]);
  }
  expect(await fleet.routerCpuSeconds()).toBeGreaterThan(0);
  await fleet.kill(0);
  await expect(fetch(`${fleet.routers[0]?.adminUrl}/livez`)).rejects.toThrow();
  expect((await fetch(`${fleet.routers[1]?.adminUrl}/livez`)).ok).toBe(true);
}, 30_000);

test("cold conversations are spread over all engines, and find theirs again at the next router", async () => {
  const { routers } = await start({});
  const client = createLoadClient(systemClock);
  onTestFinished(() => client.close());
  const urls = routers.map(({ url }) => url);
  const outcome = await runTwoTurns(
    {
      conversations: createConversations({ count: 24, form: "text", seed: 3 }),
      firstUrls: urls,
      secondUrlOf: (index) => urls[(index + 1) % urls.length]!,
      ratePerSecond: 60,
      seed: 3,
    },
    400,
    { ...ports, client },
  );
  expect(outcome.sameEngineShare).toBeGreaterThan(0.8);
  expect(outcome.largestEngineShare).toBeLessThan(0.6);
}, 30_000);

test("a fleet whose routers do not find each other is an error, and leaves nothing behind", async () => {
  // Sharing through Redis without an address of it is sharing nothing.
  let nowMs = 0;
  const nextMs = (): number => {
    nowMs += 5_000;
    return nowMs;
  };
  const late = { ...ports, clock: { nowMs: nextMs, wallMs: () => 0 } };
  const starting = startMeshFleet({ engines, routers: 2, sharing: "redis", policy: "cache_aware" }, late);
  await expect(starting).rejects.toThrow(/^after 15000 ms the router at .* is linked with 0 of 1 others$/);
}, 30_000);
