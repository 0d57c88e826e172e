/** Engines that are given adapters give others up for them, in the words of vLLM and of SGLang. */
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { call, type Json, openPost, post } from "./client.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const names = ["one", "two", "three", "four"];
const modelsWith = (maxLoaded: number): Json => ({
  adapters: Object.fromEntries(names.map((name) => [name, { model: "tiny", path: `/adapters/${name}` }])),
  "max-loaded-adapters": maxLoaded,
});

describe.each(["vllm", "sglang"] as const)("%s", (flavour) => {
  const engines = (count: number, speed = 1_000): Promise<readonly Sim[]> =>
    rig.sims(count, { speed, parameters: { flavour, blockSize: 16, adapterSlots: 4 } });
  // Nothing is learned of engines by the way: what the routers know is what they did.
  const quiet = { policy: "least_work", scrape: { interval: "60s" } };
  const routerFor = (sims: readonly Sim[], maxLoaded: number): Promise<RunningRouter> =>
    rig.router({ engines: sims.map(({ url }) => url), config: { ...quiet, models: modelsWith(maxLoaded) } });

  const ask = (router: RunningRouter, model: string) =>
    post(`${router.url}/v1/completions`, { model, prompt: `question for ${model}`, max_tokens: 2 });
  const answered = async (router: RunningRouter, model: string): Promise<void> => {
    const answer = await ask(router, model);
    expect([answer.status, answer.json.model], answer.text).toEqual([200, model]);
  };
  const loadedIn = async ({ url }: Sim): Promise<string[]> => {
    const { data } = (await call(`${url}/v1/models`)).json as unknown as { readonly data: readonly { id: string }[] };
    return data.map(({ id }) => id).filter((id) => names.includes(id));
  };
  const computedBy = async ({ url }: Sim): Promise<number> =>
    ((await call(`${url}/sim/state`)).json.stats as { adapterLoads: number }).adapterLoads;

  test("the one used longest ago goes, and comes back when it is asked for", async () => {
    const [engine] = (await engines(1)) as [Sim];
    const router = await routerFor([engine], 2);
    for (const name of ["one", "two", "one", "three"]) await answered(router, name);
    expect(await loadedIn(engine)).toEqual(["one", "three"]);
    await answered(router, "two");
    expect(await loadedIn(engine)).toEqual(["three", "two"]);
    const page = await router.metrics();
    expect(page.sum("espalier_adapter_loads_total", { outcome: "loaded" })).toBe(4);
    expect(page.sum("espalier_adapter_unloads_total", { outcome: "unloaded" })).toBe(2);
    // Each was computed with, in a slot of its own: the model alone did not answer for it.
    expect(await computedBy(engine)).toBe(3);
    await router.untilIdle();
  });

  test("one that is in use stays; another engine is taken, and with none the client is told", async () => {
    const sims = await engines(2, 20);
    const router = await routerFor(sims, 1);
    const hold = { prompt: "x", max_tokens: 20_000, stream: true };
    const held = ["one", "two"].map((model) => openPost(`${router.url}/v1/completions`, { ...hold, model }));
    await waitFor(
      async () => (await Promise.all(sims.map(async (sim) => (await sim.state()).active.length))).join() === "1,1",
      { what: "an adapter in use at each engine" },
    );
    const refused = await ask(router, "three");
    expect(refused.status).toBe(503);
    expect((await Promise.all(sims.map(loadedIn))).flat().sort()).toEqual(["one", "two"]);
    for (const request of held) request.destroy();
    await router.untilIdle();
    await answered(router, "three");
    await router.untilIdle();
  });

  test("routers that know nothing of each other cannot take an adapter from under a request", async () => {
    const [engine] = (await engines(1)) as [Sim];
    const routers = [await routerFor([engine], 1), await routerFor([engine], 1)];
    for (let round = 0; round < 3; round++) {
      await answered(routers[0]!, "one");
      await answered(routers[1]!, "two");
    }
    // All at once, some find no room. Nobody is told that a model does not exist.
    const rush = await Promise.all(names.flatMap((name) => routers.map((router) => ask(router, name))));
    for (const { status, text } of rush) expect([200, 503], text).toContain(status);
    for (const router of routers) {
      await router.untilIdle();
      await answered(router, "four");
    }
  });

  test("routers of a mesh leave alone what another one has a request for", async () => {
    const [engine] = (await engines(1, 20)) as [Sim];
    const config = { ...quiet, models: modelsWith(1) };
    const [here, there] = (await meshRouters(rig, 2, [engine], { tokenizes: false, config })) as RunningRouter[];
    const body = { model: "one", prompt: "x".repeat(400), max_tokens: 20_000, stream: true };
    const held = openPost(`${there!.url}/v1/completions`, body);
    await waitFor(async () => (await engine.state()).active.length === 1, { what: "an adapter in use" });
    // The word of the adapter's use goes with that of its prompt.
    await waitFor(
      async () => {
        const { candidates } = (await here!.admin("POST", "/admin/explain", body)).json;
        return (candidates as readonly { readonly placement: unknown }[])[0]?.placement !== null;
      },
      { what: "news of the request" },
    );
    expect((await ask(here!, "two")).status).toBe(503);
    expect(await loadedIn(engine)).toEqual(["one"]);
    held.destroy();
    for (const router of [here!, there!]) await router.untilIdle();
  });
});
