import { defaultAdmissionSettings } from "@espalier/routing";
import { expect, test } from "vitest";
import { requestOf } from "./requests.ts";
import { createRouterRig, hopDelayMs, idleLoad } from "./router-rig.ts";

const second = 1_000;
const stepMs = 6 + 160 / 8;

test("an answer's times have the hops to the engine and back in them", async () => {
  const { time, router, outcomes, send } = await createRouterRig();
  time.advance(100);
  send({ index: 0 });
  expect(router.inFlight).toBe(1);
  time.advance(second);
  const [outcome] = outcomes;
  expect(outcomes).toHaveLength(1);
  expect(outcome!.firstTokenMs).toBeCloseTo(100 + 2 * hopDelayMs + stepMs, 6);
  expect(outcome!.endMs).toBeCloseTo(100 + 2 * hopDelayMs + stepMs + 15 * 6.35, 6);
  expect(outcome).toMatchObject({ cachedTokens: 0, error: undefined, predictedTokens: 0, isSpill: false });
  expect(router.inFlight).toBe(0);
});

test("load is counted from the decision to the end, and nothing of it stays", async () => {
  const { time, load, send } = await createRouterRig();
  send({ index: 0, outputTokens: 64, maxOutputTokens: 64 });
  expect(load()).toEqual({ inFlight: 1, pending: 160, decode: 0, outstanding: 64 });
  time.advance(2 * hopDelayMs + stepMs);
  expect(load()).toMatchObject({ inFlight: 1, pending: 0, decode: 160 });
  time.advance(5 * second);
  expect(load()).toEqual(idleLoad);
});

test.each([
  { outputTokens: 1_500, maxOutputTokens: undefined, expected: 256 },
  { outputTokens: 3, maxOutputTokens: undefined, expected: 256 },
  { outputTokens: 300, maxOutputTokens: 4_096, expected: 4_096 },
])("how long an answer becomes is not known before: %o", async ({ outputTokens, maxOutputTokens, expected }) => {
  const { load, send } = await createRouterRig({ admission: defaultAdmissionSettings });
  send({ index: 0, outputTokens, ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }) });
  expect(load().outstanding).toBe(expected);
});

test("blocks of requests in flight count once, where the policy reads them, and none stay", async () => {
  const active = async (policy: "dynamo" | "least_work") => {
    const { time, router, engines, send } = await createRouterRig({ engines: 1, policy });
    const tokens = (): number => router.targets[0]!.load.activeTokens;
    for (const index of [0, 1]) send({ index, sharedTokens: 96, outputTokens: 64 });
    const seen = [tokens()];
    time.advance(100);
    engines[0]!.kill();
    time.advance(5 * second);
    return [...seen, tokens()];
  };
  expect(await active("dynamo")).toEqual([96 + 2 * 64, 0]);
  expect(await active("least_work")).toEqual([0, 0]);
});

test("what an engine holds is predicted, and only the rest counts as work to do", async () => {
  const { time, load, outcomes, send, placed } = await createRouterRig();
  send({ index: 0, session: 0 });
  time.advance(second);
  send({ index: 1, session: 0 });
  expect(load().pending).toBe(160 - 144);
  time.advance(second);
  expect(outcomes[1]).toMatchObject({ engine: outcomes[0]!.engine, predictedTokens: 144, cachedTokens: 144 });
  const key = `engine-${outcomes[0]!.engine}`;
  expect(placed).toEqual([key, `${key} computed`, `${key} answered 0`, key, `${key} computed`, `${key} answered 144`]);
});

test("an engine that is gone before the first token is left for another, and what was placed there withdrawn", async () => {
  const { time, engines, outcomes, load, placed, send } = await createRouterRig();
  send({ index: 0 });
  time.advance(hopDelayMs + 1);
  const first = engines.find((engine) => engine.stats().running + engine.stats().waiting > 0)!;
  first.kill();
  time.advance(second);
  expect(outcomes).toHaveLength(1);
  expect(outcomes[0]).toMatchObject({ error: undefined, isSpill: true });
  expect(outcomes[0]!.engine).not.toBe(first.number);
  expect(placed.slice(0, 2)).toEqual([first.key, `${first.key} withdrawn`]);
  expect(load()).toEqual(idleLoad);
});

test("a refused connection is tried elsewhere", async () => {
  const { time, engines, outcomes, send, load } = await createRouterRig({ policy: "round_robin" });
  engines[0]!.kill();
  engines[1]!.kill();
  for (let index = 0; index < 6; index++) send({ index });
  time.advance(second);
  expect(outcomes.map(({ engine, error }) => [engine, error])).toEqual(Array(6).fill([2, undefined]));
  expect(outcomes.some(({ isSpill }) => isSpill)).toBe(true);
  expect(load()).toEqual(idleLoad);
});

test("an engine that is gone after the first token is an error, for the client has a part of the answer", async () => {
  const { time, engines, outcomes, load, placed, send } = await createRouterRig();
  send({ index: 0, outputTokens: 400 });
  time.advance(200);
  engines.find((engine) => engine.stats().running > 0)!.kill();
  time.advance(second);
  expect(outcomes).toHaveLength(1);
  expect(outcomes[0]).toMatchObject({ error: "the engine went away", engine: -1 });
  expect(outcomes[0]!.cachedTokens).toBeNaN();
  expect(outcomes[0]!.firstTokenMs).toBeLessThan(outcomes[0]!.endMs);
  expect(placed.at(-1)).toMatch(/answered undefined$/);
  expect(load()).toEqual(idleLoad);
});

test("with no engine left a request fails once, and its times say that nothing came", async () => {
  const { time, engines, outcomes, load, router, send } = await createRouterRig();
  for (const engine of engines) engine.kill();
  send({ index: 0 });
  time.advance(second);
  send({ index: 1 });
  time.advance(second);
  expect(outcomes.map(({ error }) => error)).toEqual(Array(2).fill("no engine is available"));
  expect(outcomes.map(({ firstTokenMs }) => firstTokenMs)).toEqual([Number.NaN, Number.NaN]);
  expect(load()).toEqual(idleLoad);
  expect(router.inFlight).toBe(0);
});

test("an engine that failed is used again after two good probes, and not before", async () => {
  const { time, engines, outcomes, router, send } = await createRouterRig({ engines: 1 });
  const [engine] = engines;
  engine!.kill();
  send({ index: 0 });
  time.advance(second);
  expect(router.targets[0]!.usable).toBe(false);
  engine!.start();
  const probes = [2, 4].map((atS) => atS * second);
  time.runUntil(probes[0]! + 1);
  expect(router.targets[0]!.usable).toBe(false);
  send({ index: 1 });
  expect(outcomes.at(-1)!.error).toBe("no engine is available");
  time.runUntil(probes[1]! + 1);
  expect(router.targets[0]!.usable).toBe(true);
  send({ index: 2 });
  time.advance(second);
  expect(outcomes.at(-1)).toMatchObject({ error: undefined, engine: 0 });
});

test("an engine that fails between two good probes begins anew", async () => {
  const { time, engines, router } = await createRouterRig({ engines: 1 });
  const [target] = router.targets;
  target!.failed();
  time.runUntil(2_001);
  engines[0]!.kill();
  time.runUntil(4_001);
  engines[0]!.start();
  time.runUntil(6_001);
  expect(target!.usable).toBe(false);
  time.runUntil(8_001);
  expect(target!.usable).toBe(true);
});

test("an engine that nobody asks is found out by the probes", async () => {
  const { time, engines, router } = await createRouterRig();
  engines[1]!.kill();
  time.advance(2_001);
  expect(router.targets.map(({ usable }) => usable)).toEqual([true, false, true]);
});

test("engines' metrics are read once a second, and forgotten when the engine is gone", async () => {
  const { time, engines, router, send } = await createRouterRig({ engines: 1 });
  const { signals } = router.targets[0]!;
  expect(signals.running).toBe(0);
  for (let index = 0; index < 3; index++) send({ index, outputTokens: 1_000 });
  time.advance(900);
  expect(signals.running).toBe(0);
  expect(signals.ageMs()).toBeCloseTo(900, 6);
  time.advance(101);
  expect(signals).toMatchObject({ running: 3, waiting: 0, inFlightAtScrape: 3 });
  expect(signals.kvUse).toBeGreaterThan(0);
  engines[0]!.kill();
  time.advance(second);
  expect(signals.running).toBeNaN();
  expect(signals.ageMs()).toBe(Number.POSITIVE_INFINITY);
});

test("the death of a router ends what it has under way, at the engines too", async () => {
  const { time, engines, router, outcomes, send } = await createRouterRig();
  for (let index = 0; index < 4; index++) send({ index, outputTokens: 300 });
  time.advance(200);
  send({ index: 4 });
  router.die();
  expect(outcomes.map(({ error }) => error)).toEqual(Array(5).fill("the router went away"));
  time.advance(second);
  expect(engines.map((engine) => engine.stats().running)).toEqual([0, 0, 0]);
  expect(outcomes).toHaveLength(5);
  expect(router.inFlight).toBe(0);
});

test("a router that has stopped leaves no timer", async () => {
  const { time, router, send } = await createRouterRig();
  send({ index: 0 });
  time.advance(second);
  await router.stop();
  expect(time.pendingCount).toBe(0);
});

test("a policy that looks at no prefixes places nothing", async () => {
  const { time, placed, outcomes, send } = await createRouterRig({ policy: "round_robin" });
  for (let index = 0; index < 6; index++) send({ index });
  time.advance(second);
  expect(placed).toEqual([]);
  expect(outcomes.map(({ engine }) => engine).sort()).toEqual([0, 0, 1, 1, 2, 2]);
});

test("a prompt of less than a block has nothing to be found by", async () => {
  const { time, outcomes, send } = await createRouterRig({ policy: "prefix_hash" });
  expect(requestOf({ index: 0, promptTokens: 7, outputTokens: 1 }).chain).toHaveLength(0);
  send({ index: 0, promptTokens: 7, outputTokens: 1 });
  time.advance(second);
  expect(outcomes[0]).toMatchObject({ error: undefined, cachedTokens: 0 });
});
