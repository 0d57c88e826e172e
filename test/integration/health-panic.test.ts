import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type Answer, chat, errorOf, post } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const config = { policy: "round_robin", breaker: { open: "60s", "max-open": "60s" } };

const ask = (router: RunningRouter): Promise<Answer> => post(`${router.url}/v1/chat/completions`, chat());

async function untilDown(router: RunningRouter, sims: readonly Sim[]): Promise<void> {
  const ids = new Set(sims.map(({ id }) => id));
  const areDown = async (): Promise<boolean> =>
    (await router.engines()).every(({ id, state }) => !ids.has(id) || state === "down");
  await waitFor(areDown, { what: "engines that are down", deadlineMs: 20_000 });
}

const enginesOf = (answers: readonly Answer[]): ReadonlySet<unknown> =>
  new Set(answers.map(({ headers }) => headers["x-espalier-engine"]));

test("three of four engines fail their checks and serve: after a few requests all have their share again", async () => {
  const sims = await rig.sims(4);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  const sick = sims.slice(1);
  await sick[0]!.fault({ kind: "unhealthy" });
  await untilDown(router, sick.slice(0, 1));
  for (let request = 0; request < 6; request++) expect((await ask(router)).status).toBe(200);
  // One of four is left alone, as ever.
  expect((await sick[0]!.state()).requests).toHaveLength(0);

  for (const sim of sick.slice(1)) await sim.fault({ kind: "unhealthy" });
  await untilDown(router, sick);
  const answers: Answer[] = [];
  for (let request = 0; request < 24; request++) answers.push(await ask(router));

  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(enginesOf(answers)).toEqual(new Set(sims.map(({ id }) => id)));
  const page = await router.metrics();
  expect(page.sum("espalier_engine_up")).toBe(1);
  expect(page.sum("espalier_engine_health_overruled")).toBe(3);
  expect(page.sum("espalier_engine_breaker_state")).toBe(0);
  expect((await router.engines()).map(({ targets }) => targets[0]?.usable)).toEqual([true, true, true, true]);

  for (const sim of sick) await sim.clearFaults();
  await waitFor(async () => (await router.metrics()).sum("espalier_engine_health_overruled") === 0, {
    what: "end of the panic",
  });
  expect((await ask(router)).status).toBe(200);
});

test("three of four engines are gone: no request fails, and each of the three is asked once", async () => {
  const sims = await rig.sims(4);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  const gone = sims.slice(1);
  for (const sim of gone) await sim.stop();
  await untilDown(router, gone);

  const answers: Answer[] = [];
  for (let request = 0; request < 20; request++) answers.push(await ask(router));

  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(enginesOf(answers)).toEqual(new Set([sims[0]!.id]));
  // What failed once goes to the engine that is up, not to the next one that is only tried.
  const attempts = answers.map(({ headers }) => Number(headers["x-espalier-attempts"]));
  expect(Math.max(...attempts)).toBe(2);
  expect(attempts.filter((count) => count > 1)).toHaveLength(gone.length);
});

test("engines that take requests and never answer hold up one request each", async () => {
  const sims = await rig.sims(4);
  const timeouts = { "first-byte": "1s" };
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { ...config, timeouts } });
  const silent = sims.slice(1);
  for (const sim of silent) {
    await sim.fault({ kind: "unhealthy" });
    await sim.fault({ kind: "hang-before-headers", count: 100 });
  }
  await untilDown(router, silent);

  const answers = await Promise.all(Array.from({ length: 20 }, () => ask(router)));

  const served = answers.filter(({ status }) => status === 200);
  expect(answers.filter(({ status }) => status !== 200).map(({ status }) => status)).toEqual([504, 504, 504]);
  expect(enginesOf(served)).toEqual(new Set([sims[0]!.id]));
});

test("all engines of a model are gone: a quick error, and the router is not ready", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  for (const sim of sims) await sim.stop();
  await untilDown(router, sims);
  expect(router.router.readiness().ready).toBe(false);
  const tried = await ask(router);
  expect([tried.status, errorOf(tried).code]).toEqual([502, "upstream_connect_failed"]);
  const refused = await ask(router);
  expect([refused.status, errorOf(refused).code]).toEqual([503, "no_engine_available"]);
  expect(router.router.readiness()).toEqual({ ready: false, reasons: ["no engine is usable"] });
});
