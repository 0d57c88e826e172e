import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { quietSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { call, openPost, post } from "./client.ts";
import { type HttpEngine, httpEngine, jsonEngine, type SeenRequest } from "./engines.ts";
import { addressOf, joinRouter, meshOf, meshRouters, untilLinked } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const answer = "{}";

/** Engines that answer when they are told to. */
async function holdingEngines(count: number) {
  const held: SeenRequest[] = [];
  const engines: HttpEngine[] = [];
  for (let at = 0; at < count; at++) engines.push(await httpEngine(rig, (request) => void held.push(request)));
  const release = (): void => {
    for (const { response } of held.splice(0)) {
      response.writeHead(200, { "content-type": "application/json" }).end(answer);
    }
  };
  return { engines, held, release, counts: () => engines.map(({ requests }) => requests.length) };
}

/** What a router counts in flight by others, of all their targets. */
async function othersInFlight(router: RunningRouter): Promise<number> {
  const { load } = await meshOf(router);
  return load.reduce((sum, { inFlight }) => sum + inFlight, 0);
}

const untilOthers = (router: RunningRouter, count: number): Promise<unknown> =>
  waitFor(async () => (await othersInFlight(router)) === count, { what: `${count} requests of other routers` });

const send = (router: RunningRouter, prompt: readonly number[] = tokensOf(1, 40)): void =>
  void openPost(`${router.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 1 });

describe.each(["least_connections", "least_work", "power_of_two"])("with the policy %s", (policy) => {
  test("the load of other routers is counted: requests spread over the engines, whoever takes them", async () => {
    const { engines, held, release, counts } = await holdingEngines(4);
    const routers = await meshRouters(rig, 2, engines, { tokenizes: false, config: { policy } });
    const [one, other] = [routers[0]!, routers[1]!];
    // Each of the first router's requests is known to the second before that chooses.
    for (let round = 1; round <= 8; round++) {
      const router = round % 2 === 0 ? other : one;
      send(router, tokensOf(round, 40));
      await waitFor(() => held.length === round, { what: "request at an engine" });
      await untilOthers(one, Math.floor(round / 2));
      await untilOthers(other, Math.ceil(round / 2));
    }
    if (policy !== "power_of_two") expect(counts()).toEqual([2, 2, 2, 2]);
    else expect(Math.max(...counts())).toBeLessThanOrEqual(4);
    release();
    await one.untilIdle();
    await untilOthers(one, 0);
    await untilOthers(other, 0);
  });
});

test("an engine that another router keeps busy is left alone", async () => {
  const busy = await holdingEngines(1);
  const quiet = await jsonEngine(rig, answer);
  const options = { tokenizes: false, config: { policy: "least_connections" } };
  const one = await joinRouter(rig, undefined, busy.engines, options);
  const other = await joinRouter(rig, one, [...busy.engines, quiet], options);
  await untilLinked([one, other]);
  for (let at = 0; at < 3; at++) send(one);
  await untilOthers(other, 3);
  for (let at = 0; at < 10; at++) {
    const { headers } = await post(`${other.url}/v1/completions`, { model: "tiny", prompt: "hello", max_tokens: 1 });
    expect(headers["x-espalier-engine"]).toBe(quiet.id);
  }
  busy.release();
  await untilOthers(other, 0);
});

test("an engine that is drained at one router, and taken back at another, gets its share from both again", async () => {
  const engines = [await jsonEngine(rig, answer), await jsonEngine(rig, answer)];
  const routers = await meshRouters(rig, 2, engines, { tokenizes: false, config: { policy: "round_robin" } });
  const [one, other] = [routers[0]!, routers[1]!];
  const drained = engines[0]!;
  const setDraining = (router: RunningRouter, draining: boolean): Promise<unknown> =>
    router.admin("PATCH", `/admin/engines/${encodeURIComponent(drained.id)}`, { draining });
  const shares = async (): Promise<readonly (readonly number[])[]> => {
    const found: number[][] = [];
    for (const router of routers) {
      const before = engines.map(({ requests }) => requests.length);
      for (let at = 0; at < 6; at++)
        await post(`${router.url}/v1/completions`, { model: "tiny", prompt: "hello", max_tokens: 1 });
      found.push(engines.map(({ requests }, at) => requests.length - before[at]!));
    }
    return found;
  };
  const sharesBecome = (wanted: readonly number[]): Promise<unknown> =>
    waitFor(async () => JSON.stringify(await shares()) === JSON.stringify([wanted, wanted]), {
      what: `shares of ${wanted}`,
    });
  await setDraining(one, true);
  await sharesBecome([0, 6]);
  await setDraining(other, false);
  await sharesBecome([3, 3]);
});

test("the load of a router that is gone counts no more", async () => {
  const { engines, held } = await holdingEngines(2);
  const [one, other] = await meshRouters(rig, 2, engines, { tokenizes: false });
  for (let at = 0; at < 4; at++) send(one!, tokensOf(at, 40));
  await waitFor(() => held.length === 4, { what: "requests at the engines" });
  await untilOthers(other!, 4);
  await one!.router.stop();
  await untilOthers(other!, 0);
});

test("an engine drained at one router is drained at all, and back again", async () => {
  const sims = await quietSims(rig, 2);
  const routers = await meshRouters(rig, 2, sims, { tokenizes: false });
  const [one, other] = [routers[0]!, routers[1]!];
  const setDrain = (router: RunningRouter, draining: boolean) =>
    router.admin("PATCH", `/admin/engines/${encodeURIComponent(sims[0]!.id)}`, { draining });
  const untilDraining = (router: RunningRouter, draining: boolean) =>
    waitFor(async () => (await router.engines()).find(({ id }) => id === sims[0]!.id)?.draining === draining, {
      what: `engine with draining ${draining}`,
    });
  expect((await setDrain(one, true)).status).toBe(200);
  await untilDraining(other, true);
  for (let at = 0; at < 4; at++) {
    const turn = await ask(other, "/v1/completions", { prompt: tokensOf(at, 40), max_tokens: 1 });
    expect(turn.engine).toBe(sims[1]!.id);
  }
  expect((await setDrain(other, false)).status).toBe(200);
  await untilDraining(one, false);
});

test("a stored response is found by way of any router", async () => {
  const sims = await rig.sims(3);
  const routers = await meshRouters(rig, 2, sims, { tokenizes: false, config: { policy: "round_robin" } });
  for (let at = 0; at < 6; at++) {
    const fields = { model: "tiny", input: "hello", max_output_tokens: 3 };
    const made = await post(`${routers[at % 2]!.url}/v1/responses`, fields);
    const next = routers[(at + 1) % 2]!;
    const engine = made.headers["x-espalier-engine"];
    const followed = await post(`${next.url}/v1/responses`, { ...fields, previous_response_id: made.json.id });
    expect([followed.status, followed.headers["x-espalier-engine"]]).toEqual([200, engine]);
    const read = await call(`${next.url}/v1/responses/${made.json.id}`);
    expect([read.status, read.headers["x-espalier-engine"]]).toEqual([200, engine]);
  }
});

test("routers without the secret are refused, and go on by themselves", async () => {
  const sims = await quietSims(rig, 1);
  const [first] = await meshRouters(rig, 1, sims, { tokenizes: false });
  const [stranger] = await meshRouters(rig, 1, sims, {
    tokenizes: false,
    mesh: { secret: "quite another secret, of somebody else", "router-id": "stranger", seeds: [addressOf(first!)] },
  });
  expect((await ask(stranger!, "/v1/completions", { prompt: tokensOf(1, 40), max_tokens: 1 })).status).toBe(200);
  for (const router of [first!, stranger!])
    expect((await meshOf(router)).members.filter((m) => m.isLinked)).toEqual([]);
  await untilLinked([first!]);
});

test("a router that shares nothing says so", async () => {
  const router = await rig.router({});
  expect((await router.admin("GET", "/admin/mesh")).json).toEqual({ backend: "off" });
  expect((await router.admin("GET", "/admin/status")).json.mesh).toBeNull();
  expect(router.router.meshAddress).toBeNull();
});
