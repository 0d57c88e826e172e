import { systemClock, systemScheduler } from "@espalier/core";
import type { Child, RouterListening, StartRoutersOptions } from "espalier-router";
import { startLocalEngines, startRouters } from "espalier-router";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type MeshFleetOptions, startMeshFleet } from "../src/support/mesh-fleet.ts";
import { type Stoppable, startAnswering } from "./rig.ts";

// What is started, and how, is looked at; nothing is.
vi.mock(import("espalier-router"), async (original) => ({
  ...(await original()),
  startLocalEngines: vi.fn(),
  startRouters: vi.fn(),
}));

const parts: Stoppable[] = [];
const stopped: string[] = [];
const killed: string[] = [];
let started: StartRoutersOptions | undefined;
let cpuSeconds = 0;
let routersFail = false;
let members = 0;

const engineUrls = ["http://engine-1", "http://engine-2"];
const ports = { clock: systemClock, scheduler: systemScheduler };

function child<Listening>(name: string, listening: Listening): Child<Listening> {
  const process = { kill: (signal: string) => killed.push(`${name} ${signal}`) > 0 };
  return {
    listening,
    process: process as unknown as Child<Listening>["process"],
    exited: Promise.resolve(null),
    stop: async () => void stopped.push(name),
  };
}

/** The admin pages of a router. */
function startAdmin(): Promise<string> {
  return startAnswering(
    (request, response) => {
      if (request.url === "/metrics") {
        cpuSeconds += 1;
        response.end(`process_cpu_seconds_total ${cpuSeconds}\nprocess_resident_memory_bytes 1\n`);
      } else if (request.url === "/admin/mesh") {
        response.end(JSON.stringify({ members: Array(members).fill({ state: "alive", isLinked: true }) }));
      } else response.end(JSON.stringify({ feeds: engineUrls.map(() => ({ state: "live" })) }));
    },
    (part) => void parts.push(part),
  );
}

beforeEach(() => {
  stopped.length = 0;
  killed.length = 0;
  started = undefined;
  cpuSeconds = 0;
  routersFail = false;
  members = 0;
  vi.mocked(startLocalEngines).mockReset();
  vi.mocked(startLocalEngines).mockImplementation(async () =>
    child("engines", { engines: engineUrls.map((url) => ({ id: url, url })) }),
  );
  vi.mocked(startRouters).mockImplementation(async (options, children) => {
    started = options;
    const routers: RouterListening[] = [];
    for (let index = 0; index < options.count; index++) {
      if (routersFail && index === 1) throw new Error("the router exited with code 1");
      const listening = {
        url: `http://router-${index}`,
        adminUrl: await startAdmin(),
        meshAddress: null,
        picker: null,
      };
      children.push(child(`router-${index}`, listening));
      routers.push(listening);
    }
    return routers;
  });
});

afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

const options = (more: Partial<MeshFleetOptions> = {}): MeshFleetOptions => ({
  engines: { count: 2, preset: "h100-32b-tp2", model: "m", speed: 1, port: 0, kvEvents: false },
  routers: 2,
  sharing: "none",
  policy: "cache_aware",
  ...more,
});

const argumentsOf = (index: number): readonly string[] => started?.optionsOf(index).arguments ?? [];

test("routers get every engine, the policy, and free ports", async () => {
  await startMeshFleet(options({ routers: 3 }), ports);
  expect(started).toMatchObject({ count: 3, sharing: "none", untilEngines: 2 });
  for (const index of [0, 1, 2]) {
    expect(started?.optionsOf(index)).toMatchObject({ engineUrls, policy: "cache_aware", port: 0, adminPort: 0 });
    expect(argumentsOf(index).join(" ")).not.toContain("mesh");
  }
});

test("engines that run already are not started, and outlive the fleet", async () => {
  const fleet = await startMeshFleet(options({ engines: engineUrls }), ports);
  expect(fleet.engineUrls).toEqual(engineUrls);
  expect(startLocalEngines).not.toHaveBeenCalled();
  expect(started?.optionsOf(1)).toMatchObject({ engineUrls });
  await fleet.stop();
  expect([...stopped].sort()).toEqual(["router-0", "router-1"]);
});

test("a mesh is that of the local fleets", async () => {
  members = 1;
  await startMeshFleet(options({ sharing: "mesh" }), ports);
  expect(started?.sharing).toBe("mesh");
  expect(argumentsOf(0).join(" ")).not.toContain("redis");
});

test("through Redis each router has a name of its own, and no links", async () => {
  members = 1;
  await startMeshFleet(options({ sharing: "redis", redisUrl: "redis://127.0.0.1:1" }), ports);
  expect(started?.sharing).toBe("none");
  expect(argumentsOf(0)).toEqual(expect.arrayContaining(["--mesh-redis-url", "redis://127.0.0.1:1"]));
  expect(argumentsOf(0)).toEqual(expect.arrayContaining(["--mesh-router-id", "router-1"]));
  expect(argumentsOf(1)).toEqual(expect.arrayContaining(["--mesh-router-id", "router-2"]));
});

test("the CPU time is that of all routers together", async () => {
  const fleet = await startMeshFleet(options({ routers: 2 }), ports);
  // Each page says one more: 1 + 2, then 3 + 4.
  expect(await fleet.routerCpuSeconds()).toBe(3);
  expect(await fleet.routerCpuSeconds()).toBe(7);
});

test("a router is killed without a word, the others live on, and everything ends with the fleet", async () => {
  const fleet = await startMeshFleet(options({ routers: 3 }), ports);
  await fleet.kill(1);
  expect(killed).toEqual(["router-1 SIGKILL"]);
  expect(stopped).toEqual([]);
  await fleet.stop();
  expect([...stopped].sort()).toEqual(["engines", "router-0", "router-1", "router-2"]);
  await fleet.stop();
  expect(stopped).toHaveLength(4);
});

test("when a router does not start, what was started before is ended", async () => {
  routersFail = true;
  await expect(startMeshFleet(options({ routers: 3 }), ports)).rejects.toThrow("the router exited with code 1");
  expect([...stopped].sort()).toEqual(["engines", "router-0"]);
});

test("when routers are not linked in time, everything is ended", async () => {
  let nowMs = 0;
  const nextMs = (): number => {
    nowMs += 10_000;
    return nowMs;
  };
  const late = { ...ports, clock: { ...systemClock, nowMs: nextMs } };
  await expect(startMeshFleet(options({ sharing: "mesh" }), late)).rejects.toThrow("is linked with 0 of 1 others");
  expect([...stopped].sort()).toEqual(["engines", "router-0", "router-1"]);
});

test("with KV events every feed is waited for", async () => {
  const engines = { ...options().engines, kvEvents: true };
  await startMeshFleet(options({ engines }), ports);
  const more = options({ engines: { ...engines, count: 3 } });
  vi.mocked(startLocalEngines).mockImplementation(async () =>
    child("engines", { engines: [...engineUrls, "http://engine-3"].map((url) => ({ id: url, url })) }),
  );
  let nowMs = 0;
  const nextMs = (): number => {
    nowMs += 10_000;
    return nowMs;
  };
  const late = { ...ports, clock: { ...systemClock, nowMs: nextMs } };
  await expect(startMeshFleet(more, late)).rejects.toThrow("knows of 2 of 3 live feeds");
});
