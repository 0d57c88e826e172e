import { type AdmissionSettings, defaultAdmissionSettings } from "@espalier/routing";
import { expect, test } from "vitest";
import { createRouterRig, hopDelayMs, idleLoad } from "./router-rig.ts";

const stepMs = 6 + 160 / 8;

/** One prompt at a time at an engine. */
const oneAtATime: AdmissionSettings = {
  ...defaultAdmissionSettings,
  classes: defaultAdmissionSettings.classes.map((one) => ({ ...one, maxPendingTokens: 1, yields: false })),
};

test("requests wait in the router while engines are busy, and go by class when a first token comes", async () => {
  const { time, router, outcomes, engines, load, send } = await createRouterRig({ engines: 1, admission: oneAtATime });
  send({ index: 0 });
  send({ index: 1, className: "batch" });
  send({ index: 2, className: "interactive" });
  expect(router.admission?.queued).toBe(2);
  expect(load()).toMatchObject({ inFlight: 1, pending: 160 });
  time.advance(2 * hopDelayMs + stepMs);
  expect([router.admission?.queued, load().inFlight]).toEqual([1, 2]);
  time.advance(2_000);
  expect(outcomes).toHaveLength(3);
  expect(engines[0]!.stats().waiting).toBe(0);
  const [, interactive, batch] = outcomes.map(({ firstTokenMs }) => firstTokenMs).sort((a, b) => a - b);
  expect(interactive).toBeLessThan(batch!);
  expect(load()).toEqual(idleLoad);
});

test("without contention a request goes when it comes, as it does without admission", async () => {
  const times = [];
  for (const options of [{}, { admission: defaultAdmissionSettings }]) {
    const { time, outcomes, send } = await createRouterRig(options);
    for (let index = 0; index < 20; index++) {
      send({ index, className: index % 2 === 0 ? "interactive" : "default" });
      time.advance(30);
    }
    time.advance(5_000);
    times.push(outcomes.map(({ firstTokenMs, engine }) => [firstTokenMs, engine]));
  }
  expect(times[1]).toEqual(times[0]);
});

test("a router that dies takes those who wait with it, and their clients hear of it", async () => {
  const { time, router, outcomes, send } = await createRouterRig({ engines: 1, admission: oneAtATime });
  for (let index = 0; index < 4; index++) send({ index });
  router.die();
  expect(outcomes.map(({ error }) => error)).toEqual(Array(4).fill("the router went away"));
  expect([router.inFlight, router.admission?.queued]).toEqual([0, 0]);
  time.advance(5_000);
  expect(outcomes).toHaveLength(4);
});

test("those who wait for an engine that dies go to the next one", async () => {
  const { time, engines, outcomes, send } = await createRouterRig({ engines: 2, admission: oneAtATime });
  for (let index = 0; index < 6; index++) send({ index });
  time.advance(hopDelayMs + 1);
  engines[0]!.kill();
  time.advance(10_000);
  expect(outcomes.map(({ error, engine }) => [error, engine])).toEqual(Array(6).fill([undefined, 1]));
});

test("a queue that is full refuses, and the client is told", async () => {
  const { outcomes, send } = await createRouterRig({ engines: 1, admission: { ...oneAtATime, maxQueued: 1 } });
  for (let index = 0; index < 3; index++) send({ index });
  expect(outcomes).toHaveLength(1);
  expect(outcomes[0]).toMatchObject({ engine: -1, error: "The queue is full." });
});
