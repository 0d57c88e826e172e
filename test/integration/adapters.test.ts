import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { call, type Json, openPost, post } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Of two engines four adapters fit into each, or two. */
const adapters = ["a", "b", "c", "d", "e", "f", "g", "h"];
const quickScrape = { interval: "100ms" };

const sims = (count: number, adapterSlots: number, speed = 1_000): Promise<readonly Sim[]> =>
  rig.sims(count, { adapters, speed, parameters: { adapterSlots, adapterLoadMs: 200 } });

const routerFor = (engines: readonly Sim[], config: Json = {}): Promise<RunningRouter> =>
  rig.router({
    engines: engines.map(({ url }) => url),
    config: { policy: "least_work", scrape: quickScrape, ...config },
  });

/** Asks for an adapter; the engine that answered. */
async function ask(router: RunningRouter, model: string): Promise<string> {
  const body = { model, prompt: `question for ${model}`, max_tokens: 2 };
  const answer = await post(`${router.url}/v1/completions`, body);
  expect(answer.status, answer.text).toBe(200);
  return String(answer.headers["x-espalier-engine"]);
}

async function loads(engines: readonly Sim[]): Promise<number> {
  const states = await Promise.all(engines.map(async ({ url }) => (await call(`${url}/sim/state`)).json));
  return states.reduce((sum, { stats }) => sum + (stats as { adapterLoads: number }).adapterLoads, 0);
}

interface AdaptersOf {
  readonly slots: number | null;
  readonly loaded: readonly string[];
}

/** What a router knows of an engine's adapters. */
async function known(router: RunningRouter, { id }: Sim): Promise<AdaptersOf | null> {
  const engines = (await router.engines()) as unknown as readonly {
    readonly id: string;
    readonly targets: readonly { readonly adapters: AdaptersOf | null }[];
  }[];
  return engines.find((engine) => engine.id === id)?.targets[0]?.adapters ?? null;
}

describe("least_work", () => {
  test("loads each adapter once, in one engine, while both have room", async () => {
    // As many slots as are believed until metrics tell, whenever that is.
    const engines = await sims(2, 8);
    const router = await routerFor(engines);
    const homes = new Map<string, Set<string>>();
    for (let round = 0; round < 4; round++) {
      for (const adapter of adapters) {
        homes.set(adapter, (homes.get(adapter) ?? new Set()).add(await ask(router, adapter)));
      }
    }
    for (const [adapter, where] of homes) expect(where.size, adapter).toBe(1);
    expect(await loads(engines)).toBe(adapters.length);
    const areKnown = async (): Promise<boolean> => {
      // Chance may give all to one engine, and the metrics of the other then name no adapter.
      const used = engines.filter(({ id }) => [...homes.values()].some((where) => where.has(id)));
      const views = await Promise.all(used.map((engine) => known(router, engine)));
      const loaded = views.reduce((sum, view) => sum + (view?.loaded.length ?? 0), 0);
      return views.every((view) => view?.slots === 8) && loaded === adapters.length;
    };
    await waitFor(areKnown, { what: "metrics of adapters" });
  });

  test("where round robin loads again and again", async () => {
    const engines = await sims(2, 4);
    const router = await routerFor(engines, { policy: "round_robin" });
    for (let round = 0; round < 3; round++) for (const adapter of [...adapters, "a"]) await ask(router, adapter);
    expect(await loads(engines)).toBeGreaterThan(2 * adapters.length);
  });

  test("routers that share nothing take the same engine for an adapter that none of them knows", async () => {
    const engines = await sims(3, 8);
    // Nothing is scraped while they ask, so that only the names can tell.
    const scrape = { interval: "1m" };
    const routers = [await routerFor(engines, { scrape }), await routerFor(engines, { scrape })];
    const homes: string[] = [];
    for (const adapter of adapters) {
      const [one, other] = [await ask(routers[0]!, adapter), await ask(routers[1]!, adapter)];
      expect(other, adapter).toBe(one);
      homes.push(one);
    }
    expect(new Set(homes).size).toBeGreaterThan(1);
    expect(await loads(engines)).toBe(adapters.length);
  });

  test("an adapter that somebody else had loaded is found by the engine's metrics", async () => {
    // Slow enough for the other's request to be there whenever the metrics are read.
    const engines = await sims(3, 8, 20);
    const router = await routerFor(engines);
    const [, , last] = engines as [Sim, Sim, Sim];
    for (const adapter of adapters) {
      const other = openPost(`${last.url}/v1/completions`, {
        model: adapter,
        prompt: "x",
        max_tokens: 20_000,
        stream: true,
      });
      await waitFor(async () => (await known(router, last))?.loaded.includes(adapter), { what: `adapter ${adapter}` });
      other.destroy();
    }
    for (const adapter of adapters) expect(await ask(router, adapter)).toBe(last.id);
    expect(await loads(engines)).toBe(adapters.length);
  });
});

test("epp_weighted with lora-affinity-weight keeps adapters where they are", async () => {
  const engines = await sims(2, 8);
  // Nothing else counts: what engines report of their queues differs from one moment to the next.
  const others = { "queue-weight": 0, "kv-cache-utilization-weight": 0, "prefix-cache-weight": 0 };
  const policy = { name: "epp_weighted", "lora-affinity-weight": 1, ...others };
  const router = await routerFor(engines, { policy });
  for (let round = 0; round < 3; round++) for (const adapter of adapters) await ask(router, adapter);
  expect(await loads(engines)).toBe(adapters.length);
});

test("an adapter that an engine is told to load can be asked for once the router has its list of models", async () => {
  const engines = await sims(2, 4);
  const router = await routerFor(engines);
  const body = { lora_name: "late", lora_path: "/adapters/late" };
  expect((await post(`${engines[1]!.url}/v1/load_lora_adapter`, body)).status).toBe(200);
  const other = await routerFor(engines);
  for (let asked = 0; asked < 3; asked++) expect(await ask(other, "late")).toBe(engines[1]!.id);
  expect((await post(`${router.url}/v1/completions`, { model: "late", prompt: "x", max_tokens: 1 })).status).toBe(404);
});

/** Prompt tokens that an engine has counted, as far as a router knows. */
async function promptTokens(router: RunningRouter, { id }: Sim): Promise<number> {
  const engines = (await router.engines()) as unknown as readonly {
    readonly id: string;
    readonly targets: readonly { readonly signals: { readonly prompt_tokens_total: number | null } }[];
  }[];
  return engines.find((engine) => engine.id === id)?.targets[0]?.signals.prompt_tokens_total ?? 0;
}

describe("adapters that the router has engines load", () => {
  const names = ["one", "two", "three", "four"];
  const models = {
    adapters: Object.fromEntries(names.map((name) => [name, { model: "tiny", path: `/adapters/${name}` }])),
  };
  const plainSims = (count: number): Promise<readonly Sim[]> => rig.sims(count, { parameters: { adapterSlots: 4 } });

  const servedBy = async ({ url }: Sim): Promise<string[]> => {
    const { data } = (await call(`${url}/v1/models`)).json as unknown as { readonly data: readonly { id: string }[] };
    return data.map(({ id }) => id).filter((id) => names.includes(id));
  };

  test("are models from the start, and each is loaded where its first request goes, and nowhere else", async () => {
    const engines = await plainSims(3);
    const router = await routerFor(engines, { models });
    const listed = (await call(`${router.url}/v1/models`)).json.data as readonly { id: string }[];
    expect(listed.map(({ id }) => id)).toEqual(["four", "one", "three", "tiny", "two"]);
    const homes = new Map<string, string>();
    for (const name of names) homes.set(name, await ask(router, name));
    for (const name of names) expect(await ask(router, name)).toBe(homes.get(name));
    for (const engine of engines) {
      expect((await servedBy(engine)).sort()).toEqual(names.filter((name) => homes.get(name) === engine.id).sort());
    }
    const loaded = (await router.metrics()).sum("espalier_adapter_loads_total", { outcome: "loaded" });
    expect(loaded).toBe(names.length);
  });

  test("requests that come together wait for one load", async () => {
    const engines = await plainSims(2);
    const router = await routerFor(engines, { models });
    await Promise.all(Array.from({ length: 8 }, () => ask(router, "one")));
    const loads = (await router.metrics()).sum("espalier_adapter_loads_total", { outcome: "loaded" });
    expect(loads).toBeGreaterThanOrEqual(1);
    expect(loads).toBeLessThanOrEqual(2);
  });

  test("an engine that cannot load one is passed over; when none can, the client is told", async () => {
    const engines = await plainSims(2);
    const router = await routerFor(engines, { models });
    const refusal = { kind: "status", status: 500, path: "/v1/load_lora_adapter" };
    await engines[0]!.fault(refusal);
    for (const name of names) expect(await ask(router, name)).toBe(engines[1]!.id);
    await router.untilIdle();
    const alone = await plainSims(1);
    await alone[0]!.fault(refusal);
    const lonely = await routerFor(alone, { models });
    const answer = await post(`${lonely.url}/v1/completions`, { model: "one", prompt: "x", max_tokens: 1 });
    expect(answer.status).toBe(503);
    await lonely.untilIdle();
    expect((await post(`${lonely.url}/v1/completions`, { model: "tiny", prompt: "x", max_tokens: 1 })).status).toBe(
      200,
    );
  });

  test("an engine that was restarted is told again", async () => {
    const engines = await plainSims(1);
    const router = await routerFor(engines, { models });
    await ask(router, "one");
    // A restart shows by totals that go back.
    await waitFor(async () => (await promptTokens(router, engines[0]!)) > 0, { what: "totals" });
    await post(`${engines[0]!.url}/sim/reset`, "");
    await waitFor(async () => (await known(router, engines[0]!)) === null, { what: "the restart noticed" });
    await ask(router, "one");
    expect(await servedBy(engines[0]!)).toEqual(["one"]);
  });
});
