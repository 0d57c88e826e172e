import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { connect } from "node:net";
import { waitFor } from "@espalier/testing";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { tellChaos } from "./chaos-report.ts";
import { since } from "./deadlines.ts";
import { freePort, startFleet, untilWhole } from "./fleet.ts";
import { haveEqualFacts } from "./mesh-views.ts";
import { startTraffic } from "./traffic.ts";

const engines = 3;
const rig = createRig();
afterAll(() => rig.close());

const hasRedisServer = ((): boolean => {
  if (spawnSync("redis-server", ["--version"]).status === 0) return true;
  process.stderr.write("NOT RUN: chaos with Redis, which needs redis-server\n");
  return false;
})();

/** A Redis server that forgets everything when it is killed. */
async function startRedis(port: number): Promise<ChildProcess> {
  const flags = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
  const server = spawn("redis-server", flags, { stdio: "ignore" });
  onTestFinished(() => void server.kill("SIGKILL"));
  await waitFor(() => answers(port), { what: "redis-server", deadlineMs: 10_000 });
  return server;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.on("error", () => resolve(false));
    socket.once("data", (data: Buffer) => {
      resolve(data.toString("latin1").startsWith("+PONG"));
      socket.destroy();
    });
  });
}

test.skipIf(!hasRedisServer)(
  "Redis is killed and comes back empty: no request fails, and the routers share again",
  async () => {
    const port = await freePort();
    const redis = await startRedis(port);
    const fleet = await startFleet(rig, {
      routers: 2,
      engines,
      flags: ["--mesh-backend", "redis", "--mesh-redis-url", `redis://127.0.0.1:${port}`],
    });
    const traffic = startTraffic({ routers: () => fleet.routers });
    const more = async (count: number): Promise<void> => {
      const before = traffic.completed;
      await since().within(10_000, "more answers", async () => traffic.completed >= before + count);
    };
    expect((await fleet.routers[0]!.mesh()).backend).toBe("redis");
    await more(20);
    tellChaos({ fault: "Redis: SIGKILL" });
    redis.kill("SIGKILL");
    await more(60);
    for (const router of fleet.routers) expect((await fetch(`${router.url}/readyz`)).status).toBe(200);
    await startRedis(port);
    await more(20);
    await untilWhole(fleet.routers, engines);
    await traffic.stop();
    expect(traffic.failures).toEqual([]);
    await since().within(5_000, "equal digests", () => haveEqualFacts(fleet.routers));
  },
);
