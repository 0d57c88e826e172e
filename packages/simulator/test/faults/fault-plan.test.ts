import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createFaultPlan, type FaultName, faultNames, runFaults } from "../../src/faults.ts";
import { createRecordedControls } from "./recorded-controls.ts";

const options = { routers: 5, engines: 40, durationMs: 120_000, seed: 7 };

/** What a plan does to a fleet, with the seconds at which it does it. */
function played(name: FaultName, given = options): string[] {
  const plan = createFaultPlan(name, given);
  const time = createVirtualTime();
  const { controls, calls } = createRecordedControls();
  const seen: string[] = [];
  runFaults(plan.actions, { controls, scheduler: time.scheduler }, () => {
    seen.push(`${time.clock.nowMs() / 1_000} ${calls.at(-1)}`);
  });
  time.advance(given.durationMs);
  expect(calls).toHaveLength(plan.actions.length);
  return seen;
}

test("partition: two halves hear nothing of each other for 20 s in the middle", () => {
  expect(played("partition")).toEqual(["50 partition [[0,1,2],[3,4]]", "70 heal"]);
});

test("router-loss: one router is killed, and is back 20 s later", () => {
  const [killed, back, ...more] = played("router-loss");
  const router = killed?.at(-1);
  expect([killed, back, more]).toEqual([`50 killRouter ${router}`, `70 startRouter ${router}`, []]);
});

test("join-under-load: a router joins that the run has beyond its own", () => {
  expect(createFaultPlan("join-under-load", options).spareRouters).toBe(1);
  expect(played("join-under-load")).toEqual(["57.5 startRouter 5"]);
});

test("rolling-restart: every router leaves and starts again, 5 s apart", () => {
  const seen = played("rolling-restart");
  const expected = [0, 1, 2, 3, 4].flatMap((router) => [
    `${47.5 + 5 * router} leaveRouter ${router}`,
    `${49.5 + 5 * router} startRouter ${router}`,
  ]);
  expect(seen).toEqual(expected);
});

test("rolling-restart: a router that is still answering starts again once it has ended", () => {
  const time = createVirtualTime();
  const { controls, calls } = createRecordedControls(() => time.clock.nowMs() < 60_000);
  runFaults(createFaultPlan("rolling-restart", options).actions, { controls, scheduler: time.scheduler });
  time.advance(59_999);
  expect(calls.filter((call) => call.startsWith("start"))).toEqual([]);
  time.advance(1_000);
  expect(calls.filter((call) => call.startsWith("start")).sort()).toEqual([0, 1, 2].map((at) => `startRouter ${at}`));
});

test("rolling-restart: a router that never ends is given up", () => {
  const time = createVirtualTime();
  const { controls, calls } = createRecordedControls(() => true);
  runFaults(createFaultPlan("rolling-restart", options).actions, { controls, scheduler: time.scheduler });
  time.advance(1_000_000);
  expect(calls.filter((call) => call.startsWith("start"))).toEqual([]);
  expect(time.pendingCount).toBe(0);
});

test("engine-churn: a twentieth of the engines is killed and restarted, one every 2 s", () => {
  const seen = played("engine-churn", { ...options, engines: 60 });
  const killed = seen.filter((line) => line.includes("killEngine"));
  expect(killed.map((line) => line.split(" ")[0])).toEqual(["57", "59", "61"]);
  expect(new Set(killed.map((line) => line.split(" ")[2])).size).toBe(3);
  for (const line of killed) {
    const [atS, , engine] = line.split(" ");
    expect(seen).toContain(`${Number(atS) + 1} startEngine ${engine}`);
  }
});

test("engine-churn hits one engine of a small fleet", () => {
  expect(played("engine-churn", { ...options, engines: 3 })).toHaveLength(2);
});

test("slow-engines: a quarter of the engines takes five times as long from the middle to the end", () => {
  const seen = played("slow-engines", { ...options, engines: 8 });
  expect(seen.map((line) => line.replace(/ \d+ /, " N "))).toEqual(Array(2).fill("60 slowEngine N 5"));
  expect(new Set(seen).size).toBe(2);
  expect(createFaultPlan("slow-engines", options)).toMatchObject({ fromMs: 60_000, toMs: 120_000 });
  expect(played("slow-engines", { ...options, engines: 2 })).toHaveLength(1);
});

test("slowing-engine: one engine goes on at 30 % of its speed", () => {
  const seen = played("slowing-engine", { ...options, engines: 8 });
  expect(seen.map((line) => line.replace(/ \d+ /, " N "))).toEqual([`60 slowEngine N ${1 / 0.3}`]);
});

const lasting: readonly string[] = ["slow-engines", "slowing-engine"];
/** Those that end in the run. */
const passing = faultNames.filter((name) => !lasting.includes(name));

test.each(passing)("%s: its moments hold all that it does, and lie in the middle of the run", (name) => {
  const { fromMs, toMs, actions } = createFaultPlan(name, options);
  expect(fromMs + toMs).toBe(options.durationMs);
  expect(actions[0]?.atMs).toBe(fromMs);
  expect(actions.at(-1)!.atMs).toBeLessThanOrEqual(toMs);
  expect(actions.map(({ atMs }) => atMs)).toEqual(actions.map(({ atMs }) => atMs).sort((one, other) => one - other));
});

test.each(faultNames)("%s: the same seed hits the same, and other seeds others", (name) => {
  expect(played(name)).toEqual(played(name));
  const fleets = new Set(Array.from({ length: 20 }, (_, seed) => played(name, { ...options, seed }).join()));
  const isDrawn = ["router-loss", "engine-churn", ...lasting].includes(name);
  expect(fleets.size > 1).toBe(isDrawn);
});

test.each(faultNames)("%s: a run that is too short for it is refused", (name) => {
  const durationMs = lasting.includes(name) ? 0 : 1_000;
  expect(() => createFaultPlan(name, { ...options, durationMs })).toThrow(/too short/);
});

test.each([
  ["partition", { routers: 1 }],
  ["router-loss", { routers: 1 }],
  ["rolling-restart", { routers: 1 }],
  ["engine-churn", { engines: 1 }],
  ["slow-engines", { engines: 1 }],
] as const)("%s: a fleet that is too small for it is refused", (name, small) => {
  expect(() => createFaultPlan(name, { ...options, ...small })).toThrow(RangeError);
});

test("what was cancelled is not done", () => {
  const time = createVirtualTime();
  const { controls, calls } = createRecordedControls();
  const cancel = runFaults(createFaultPlan("partition", options).actions, { controls, scheduler: time.scheduler });
  time.advance(60_000);
  cancel();
  time.advance(60_000);
  expect(calls).toEqual(["partition [[0,1,2],[3,4]]"]);
});

test.each(["engine-churn", "slow-engines", "slowing-engine"] as const)("%s: a single engine is refused", (name) => {
  expect(() => createFaultPlan(name, { ...options, engines: 1 })).toThrow(`${name} needs another engine to go on with`);
});
