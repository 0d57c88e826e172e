import { Session } from "node:inspector/promises";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { chat, post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** The steps of a request from the socket to its engine, in order, as ARCHITECTURE.md walks them: file, and function. */
const steps: readonly (readonly [file: string, name: string])[] = [
  ["server/src/data-plane/data-plane-app.ts", "enter"],
  ["server/src/data-plane/read-body.ts", "readBody"],
  ["server/src/data-plane/inference-routes.ts", "planInference"],
  ["server/src/routing/resolve-pool.ts", "resolvePool"],
  ["engines/src/proxy/headers.ts", "requestHeaders"],
  ["server/src/prefix/prompt-reader.ts", "read"],
  ["routing/src/admission/admission.ts", "enter"],
  ["routing/src/request-lifecycle.ts", "next"],
  ["routing/src/request/dispatch.ts", "Dispatch"],
  ["engines/src/proxy/attempt.ts", "start"],
];

/** How often each function was called while something was done, by the end of its file's path and its name. */
async function callsDuring(work: () => Promise<unknown>): Promise<ReadonlyMap<string, number>> {
  const session = new Session();
  session.connect();
  onTestFinished(() => session.disconnect());
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await session.post("Profiler.takePreciseCoverage");
  await work();
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const calls = new Map<string, number>();
  for (const { url, functions } of result) {
    const file = /\/packages\/(.+\.ts)/.exec(url)?.[1];
    for (const { functionName, ranges } of file === undefined ? [] : functions) {
      const name = `${file} ${functionName}`;
      calls.set(name, (calls.get(name) ?? 0) + ranges[0]!.count);
    }
  }
  return calls;
}

test("a request takes ten steps from the socket to its engine, and none of them twice", async () => {
  const sims = await rig.sims(3);
  const config = { policy: "predicted_latency", admission: { mode: "on" } };
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  const ask = () => post(`${router.url}/v1/chat/completions`, chat());
  await ask();
  await router.untilIdle();
  const calls = await callsDuring(async () => {
    expect((await ask()).status).toBe(200);
    await router.untilIdle();
  });
  const counted = steps.map(([file, name]) => [name, calls.get(`${file} ${name}`) ?? 0]);
  expect(counted).toEqual(steps.map(([, name]) => [name, 1]));
});
