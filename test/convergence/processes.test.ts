import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type MeshProcess, startMeshProcess } from "./mesh-process.ts";
import { passRealTime } from "./pass-real-time.ts";

const routers = 4;
const targetsPerRouter = 3;
/** Beside its targets, every router has one by which others tell what is visible to them. */
const targetsInAll = routers * (targetsPerRouter + 1);
const running = new Map<number, MeshProcess>();

afterEach(async () => {
  await Promise.all([...running.values()].map((router) => router.stop()));
  running.clear();
});

async function start(router: number): Promise<MeshProcess> {
  const seeds = [...running.values()].map(({ address }) => address);
  const targets = Array.from({ length: targetsPerRouter }, (_, target) => `engine-${router}-${target}/0`);
  const started = await startMeshProcess({ routerId: `router-${router}`, seeds, targets });
  running.set(router, started);
  return started;
}

async function untilEqual(deadlineMs: number): Promise<void> {
  let seen = "";
  const isEqual = async (): Promise<boolean> => {
    const states = await Promise.all([...running.values()].map((router) => router.state()));
    seen = JSON.stringify(states.map(({ digests, members }) => [digests.length, members]));
    const isWhole = states.every(({ digests, members }) => {
      return digests.length === targetsInAll && members === running.size - 1;
    });
    return isWhole && new Set(states.map(({ digests }) => digests.join())).size === 1;
  };
  await waitFor(isEqual, { what: "equal digests", deadlineMs }).catch((error: Error) => {
    throw new Error(`${error.message}; targets and members by router: ${seen}`);
  });
}

test("processes that are stopped for a while, killed and started anew end with equal facts", async () => {
  for (let router = 0; router < routers; router++) await start(router);
  for (const router of running.values()) await router.setWorking(true);
  await passRealTime(1_000);
  running.get(1)!.kill("SIGSTOP");
  await passRealTime(2_500);
  running.get(1)!.kill("SIGCONT");
  await running.get(2)!.stop();
  running.delete(2);
  await passRealTime(1_000);
  await (await start(2)).setWorking(true);
  await passRealTime(1_000);
  for (const router of running.values()) await router.setWorking(false);
  await untilEqual(30_000);
  expect(running.size).toBe(routers);
});
