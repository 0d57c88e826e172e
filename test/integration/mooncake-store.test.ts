/**
 * A Mooncake Store behind several engines, simulated: its master lists keys without tokens, which routers join to the
 * events of the engines. What a request is predicted to load from it is what its engine says it did.
 */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { cacheCounts, type Feed, feedsOf, publishingSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { call, type Json, post } from "./client.ts";
import { meshRouters, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
  await rig.close();
});

const completion = (prompt: readonly number[]) => ({ model: "tiny", prompt, max_tokens: 1 });

/** The HTTP server of a master, whose store is in a simulated engine's process. */
async function createMaster(storeUrl: string) {
  let isListing = true;
  const open = async (port: number): Promise<Server> => {
    const server = createServer(async (request, response) => {
      response.end(isListing ? await (await fetch(storeUrl + request.url)).text() : "");
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    return server;
  };
  let server = await open(0);
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    async stop(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
    /** Starts again, with nothing in its store. */
    async startEmpty(): Promise<void> {
      isListing = false;
      server = await open(port);
    },
  };
}

/** Two engines around a store, and two routers in a mesh. */
async function storeFleet(seeds: readonly [number, number]) {
  const shared = { protocol: "shared-storage" } as const;
  const [holder] = await publishingSims(rig, 1, { seed: seeds[0], transfer: shared });
  const storageUrl = `http://127.0.0.1:${(await call(`${holder!.url}/sim/transfers`)).json.port}`;
  const [reader] = await publishingSims(rig, 1, { seed: seeds[1], transfer: { ...shared, storageUrl } });
  const master = await createMaster(storageUrl);
  const config = { policy: "least_work", "kv-pools": [{ name: "Mooncake", mooncake: master.url }] };
  const routers = await meshRouters(rig, 2, [holder!, reader!], { config });
  await untilRead(routers, 3);
  return { holder: holder!, reader: reader!, master, storageUrl, routers };
}

const poolFeed = async (router: RunningRouter): Promise<Feed | undefined> =>
  (await feedsOf(router)).find(({ target }) => target === "pool Mooncake");

const untilPool = (router: RunningRouter, what: string, holds: (feed: Feed) => boolean): Promise<Feed> =>
  waitFor(
    async () => {
      const feed = await poolFeed(router);
      return feed && holds(feed) && feed;
    },
    { what: `a pool with ${what}` },
  );

/** Tokens that an engine would load for a prompt, in the words of `explain`. */
async function loads(router: RunningRouter, { id }: Sim, prompt: readonly number[]): Promise<readonly Json[]> {
  const { json } = await router.admin("POST", "/admin/explain", completion(prompt));
  const candidates = json.candidates as readonly { readonly key: string; readonly fetches: readonly Json[] }[];
  return candidates.find(({ key }) => key === id)!.fetches;
}

/** Waits until a router expects an engine to load so much of a prompt. */
const untilLoads = (router: RunningRouter, engine: Sim, prompt: readonly number[], tokens: number): Promise<true> =>
  waitFor(
    async () => {
      const fetches = await loads(router, engine, prompt);
      const wanted = tokens === 0 ? [] : [{ from: "Mooncake", tokens, ms: null }];
      return JSON.stringify(fetches) === JSON.stringify(wanted);
    },
    { what: `${tokens} tokens to load` },
  );

test("what one engine stored, another one loads as predicted on every router, until it is evicted or the master restarts", async () => {
  const { holder, reader, master, storageUrl, routers } = await storeFleet([0, 0]);
  const [first, second] = [tokensOf(1, 410), tokensOf(2, 410)];
  // Past the routers, so that they know by events and keys alone.
  for (const prompt of [first, second]) await post(`${holder.url}/v1/completions`, completion(prompt));
  for (const router of routers) {
    await untilPool(router, "50 blocks", ({ blocks }) => blocks.external === 50);
    await untilLoads(router, reader, first, 400);
  }
  const roles = (await Promise.all(routers.map(poolFeed))).map((feed) => String(feed?.role));
  expect(roles.sort()).toEqual(["backup", "owner"]);

  await routers[0]!.admin("PATCH", `/admin/engines/${holder.id}`, { draining: true });
  const turn = await ask(routers[1]!, "/v1/completions", { prompt: first, max_tokens: 1 });
  expect(turn).toMatchObject({ status: 200, engine: reader.id, predicted: 400, cached: 400 });
  expect((await call(`${reader.url}/sim/transfers`)).json.totals).toMatchObject({ imported: 1 });

  // The master restarts: until it answers again it is not believed, and then its store is empty.
  await master.stop();
  for (const router of routers) {
    await untilLoads(router, reader, second, 0);
    await untilPool(router, "no connection", ({ state }) => state === "stale");
  }
  await post(`${storageUrl}/api/v1/remove_all`, {});
  await master.startEmpty();
  for (const router of routers) {
    await untilPool(router, "nothing", ({ state, blocks }) => state === "live" && blocks.external === 0);
    expect(await loads(router, reader, second)).toEqual([]);
  }
  const after = await ask(routers[1]!, "/v1/completions", { prompt: second, max_tokens: 1 });
  expect(after).toMatchObject({ status: 200, engine: reader.id, predicted: 0, cached: 0 });
  expect(await cacheCounts(routers[1]!)).toMatchObject({ predicted: 400, reported: 400, over: 0 });
  const metrics = await routers[0]!.metrics();
  for (const outcome of ["read", "failed"])
    expect(metrics.sum("espalier_kv_pool_lists_total", { pool: "Mooncake", outcome })).toBeGreaterThan(0);
});

test("what leaves the store is predicted no more; the router that takes the pool over knows the same", async () => {
  const { holder, reader, storageUrl, routers } = await storeFleet([0, 0]);
  const prompt = tokensOf(3, 410);
  await post(`${holder.url}/v1/completions`, completion(prompt));
  for (const router of routers) await untilPool(router, "25 blocks", ({ blocks }) => blocks.external === 25);
  const owner = routers[(await poolFeed(routers[0]!))?.role === "owner" ? 0 : 1]!;
  const other = routers.find((router) => router !== owner)!;
  await owner.router.stop();
  await untilPool(other, "another reader", ({ role, blocks }) => role === "owner" && blocks.external === 25);
  await untilLoads(other, reader, prompt, 400);
  await post(`${storageUrl}/api/v1/remove_all`, {});
  await untilPool(other, "nothing", ({ blocks }) => blocks.external === 0);
  expect(await loads(other, reader, prompt)).toEqual([]);
});

test("an engine that names the blocks of others otherwise ends the pool, with the reason", async () => {
  const { holder, reader, routers } = await storeFleet([0, 1]);
  const prompt = tokensOf(4, 410);
  await post(`${holder.url}/v1/completions`, completion(prompt));
  for (const router of routers) await untilPool(router, "25 blocks", ({ blocks }) => blocks.external === 25);
  await post(`${reader.url}/v1/completions`, completion(prompt));
  for (const router of routers) {
    const feed = await untilPool(router, "a fault", ({ unusable }) => unusable !== null);
    expect(feed.unusable).toContain("PYTHONHASHSEED");
    expect(await loads(router, reader, tokensOf(4, 410))).toEqual([]);
  }
});
