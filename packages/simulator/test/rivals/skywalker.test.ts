import { expect, test } from "vitest";
import { createRivalRig } from "./rival-rig.ts";

/** Longer than the tests. */
const endless = { promptTokens: 32, outputTokens: 20_000 } as const;

test("a region's requests stay in it while one of its engines has no queue", () => {
  const { ask } = createRivalRig({ name: "skywalker", perRegion: [2, 2] });
  const engines = Array.from({ length: 8 }, (_, session) => ask({ session }, 1));
  for (const engine of engines) expect(engine).toBeGreaterThanOrEqual(2);
});

test("half of a prompt sent there before decides between engines, less does not", () => {
  const { ask, send } = createRivalRig({ name: "skywalker", perRegion: [2] });
  const home = ask({ session: 1, promptTokens: 320, sharedTokens: 192 });
  send({ session: 1, promptTokens: 320, sharedTokens: 192, outputTokens: 20_000 });
  expect(ask({ session: 2, promptTokens: 320, sharedTokens: 192 })).toBe(home);
  expect(ask({ session: 3, promptTokens: 640, sharedTokens: 192 })).toBe(1 - home);
});

test("what its own engines cannot take goes to another region that can, and stays there", () => {
  const { send, occupy, outcomes, time } = createRivalRig({ name: "skywalker", perRegion: [1, 1], maxRunning: 1 });
  occupy(0, { session: 80, ...endless });
  occupy(0, { session: 81, ...endless });
  // Two probes have seen the queue.
  time.advance(250);
  send({ session: 1 });
  time.advance(2_000);
  expect(outcomes.map(({ engine }) => engine)).toEqual([1]);
  // Client, balancer, other balancer and back: two ways of 100 ms at least.
  occupy(1, { session: 82, ...endless });
  occupy(1, { session: 83, ...endless });
  time.advance(500);
  send({ session: 2 });
  time.advance(5_000);
  expect(outcomes).toHaveLength(1);
});

test("what came from another region goes to no third one", () => {
  const { send, occupy, outcomes, time } = createRivalRig({
    ...{ name: "skywalker", perRegion: [1, 1, 1], maxRunning: 1, awayMs: 600 },
  });
  const fill = (engine: number): void => {
    occupy(engine, { session: 80 + engine, ...endless });
    occupy(engine, { session: 90 + engine, ...endless });
  };
  fill(0);
  time.advance(250);
  send({ session: 1 });
  time.advance(100);
  // It is on its way to the second region, and the third one could take it.
  fill(1);
  time.advance(10_000);
  expect(outcomes).toEqual([]);
  send({ session: 2 });
  time.advance(10_000);
  expect(outcomes.map(({ engine }) => engine)).toEqual([2]);
});

test("without the other regions it waits", () => {
  const { send, occupy, outcomes, time } = createRivalRig({
    ...{ name: "skywalker_region_local", perRegion: [1, 1], maxRunning: 1 },
  });
  occupy(0, { session: 80, ...endless });
  occupy(0, { session: 81, ...endless });
  time.advance(250);
  send({ session: 1 });
  time.advance(5_000);
  expect(outcomes).toEqual([]);
});

test("the baselines stand in the first region: in turns, by load, by user, by prefix", () => {
  const turns = createRivalRig({ name: "skywalker_round_robin", perRegion: [1, 1, 1] });
  expect([1, 2, 3, 4].map((session) => turns.ask({ session }, 2))).toEqual([0, 1, 2, 0]);
  expect(turns.outcomes[0]!.endMs).toBeGreaterThan(200);

  const load = createRivalRig({ name: "skywalker_least_load", perRegion: [1, 1] });
  load.send({ session: 1, ...endless });
  expect([2, 3].map((session) => load.ask({ session }))).toEqual([1, 1]);

  const tenantOf = (session: number): string => `user-${session % 5}`;
  const hash = createRivalRig({ name: "skywalker_hash", perRegion: [2, 2], tenantOf });
  const first = [1, 2, 3, 4, 5].map((session) => hash.ask({ session }));
  expect([6, 7, 8, 9, 10].map((session) => hash.ask({ session }))).toEqual(first);
  expect(new Set(first).size).toBeGreaterThan(1);

  const sglang = createRivalRig({ name: "skywalker_sglang", perRegion: [1, 1] });
  expect(sglang.ask({ session: 1, promptTokens: 320 })).toBe(0);
  // The smaller tree takes what is new, then the first one again what it had.
  expect(sglang.ask({ session: 2, promptTokens: 640 })).toBe(1);
  expect(sglang.ask({ session: 1, promptTokens: 320 })).toBe(0);
  for (let at = 0; at < 33; at++) sglang.send({ session: 1, promptTokens: 320, outputTokens: 20_000 });
  expect(sglang.ask({ session: 1, promptTokens: 320 })).toBe(1);
});
