import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, type ErrorObject, post } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/*
 * vLLM in sleep mode answers its health check with 200 and takes requests, which wait until it is awake: half of a fleet of two
 * was sent there. Mechanism: health was all that decided whether an engine is usable.
 */

interface Engine {
  readonly id: string;
  readonly state: string;
  readonly targets: readonly { readonly asleep: boolean; readonly usable: boolean }[];
}

const engines = async (router: RunningRouter): Promise<readonly Engine[]> =>
  (await router.admin("GET", "/admin/engines")).json.engines as readonly Engine[];

const tell = async (sim: Sim, path: string): Promise<void> => {
  expect((await fetch(sim.url + path, { method: "POST" })).status).toBe(200);
};

async function untilAsleep(router: RunningRouter, count: number): Promise<void> {
  const asleep = async () => (await engines(router)).filter(({ targets }) => targets[0]!.asleep).length;
  await waitFor(async () => (await asleep()) === count, { what: `${count} engines asleep` });
}

const ask = (router: RunningRouter) => post(`${router.url}/v1/chat/completions`, chat());

test("an engine asleep gets no requests though it is healthy, and gets them again once it is awake", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  await tell(sims[0]!, "/sleep?level=2");
  await untilAsleep(router, 1);
  for (let at = 0; at < 12; at++) {
    const { status, headers } = await ask(router);
    expect([status, headers["x-espalier-engine"]]).toEqual([200, sims[1]!.id]);
  }
  expect((await engines(router)).map(({ state }) => state)).toEqual(["up", "up"]);
  expect((await router.admin("GET", "/admin/status")).json).toMatchObject({
    ready: true,
    engines: 2,
    usableEngines: 1,
    asleepEngines: 1,
  });
  const { json } = await router.admin("POST", "/admin/explain", chat());
  expect(json.excluded).toEqual([{ key: sims[0]!.id, reasons: ["asleep, by its metrics"] }]);
  const page = await router.metrics();
  expect(page.sum("espalier_engine_asleep_ranks")).toBe(1);
  expect(page.sum("espalier_excluded_targets_total", { reason: "asleep" })).toBe(12);

  await tell(sims[0]!, "/wake_up");
  await untilAsleep(router, 0);
  await tell(sims[1]!, "/sleep");
  await untilAsleep(router, 1);
  expect((await ask(router)).headers["x-espalier-engine"]).toBe(sims[0]!.id);
});

test("while all engines are asleep requests get an error of its own, and the router is not ready", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  for (const sim of sims) await tell(sim, "/sleep");
  await untilAsleep(router, 2);
  const { status, headers, json } = await ask(router);
  expect([status, (json.error as unknown as ErrorObject).code]).toEqual([503, "engines_asleep"]);
  expect(headers["retry-after"]).toBeDefined();
  expect((await router.admin("GET", "/admin/status")).json).toMatchObject({
    ready: false,
    reasons: ["all engines are asleep"],
    usableEngines: 0,
    asleepEngines: 2,
  });
  await tell(sims[1]!, "/wake_up");
  await untilAsleep(router, 1);
  expect((await ask(router)).status).toBe(200);
});

test("requests that an engine has when it falls asleep end as the engine ends them", async () => {
  const [sim] = await rig.sims(1, { speed: 1 });
  const router = await rig.router({ engines: [sim!.url] });
  const answer = post(`${router.url}/v1/chat/completions`, chat({ max_tokens: 4_000, ignore_eos: true }));
  await waitFor(async () => (await sim!.state()).active.length === 1, { what: "a request at the engine" });
  await tell(sim!, "/sleep");
  const { status, json } = await answer;
  expect([status, (json.choices as { finish_reason: string }[])[0]!.finish_reason]).toEqual([200, "abort"]);
});
