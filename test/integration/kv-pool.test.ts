/** A pool of KV blocks behind several engines, with events of its own: blocks that one engine computed count for the others. */
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { cacheCounts, cacheRouter, type Feed, feedsOf, publishingSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { call, type Json, post } from "./client.ts";
import { meshRouters, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const completion = (prompt: readonly number[]) => ({ model: "tiny", prompt, max_tokens: 1 });
const near = { zone: "near" };

interface PoolFleet {
  /** Around the pool, which lives in the first one's process; the last one has no part in it. */
  readonly sims: readonly Sim[];
  readonly engines: readonly Json[];
  /** The section `kv-pools`. */
  readonly pools: readonly Json[];
}

/** Two engines around a pool and one beside them. */
async function poolFleet(dialect: "vllm-0.32" | "sglang-0.5.23"): Promise<PoolFleet> {
  const shared = { protocol: "shared-storage" } as const;
  const [holder] = await publishingSims(rig, 1, { dialect, transfer: { ...shared, poolEvents: { dialect } } });
  const storageUrl = `http://127.0.0.1:${(await call(`${holder!.url}/sim/transfers`)).json.port}`;
  const [reader] = await publishingSims(rig, 1, { dialect, seed: 1, transfer: { ...shared, storageUrl } });
  const [outsider] = await publishingSims(rig, 1, { dialect, seed: 2 });
  const { port, replayPort } = (await call(`${holder!.url}/sim/kv-pool`)).json;
  const [endpoint, replay] = [`tcp://127.0.0.1:${port}`, `tcp://127.0.0.1:${replayPort}`];
  return {
    sims: [holder!, reader!, outsider!],
    engines: [{ url: holder!.url, labels: near }, { url: reader!.url, labels: near }, { url: outsider!.url }],
    pools: [{ name: "shared", endpoint, replay, models: ["ti*"], labels: near }],
  };
}

const poolFeed = async (router: RunningRouter): Promise<Feed | undefined> =>
  (await feedsOf(router)).find(({ target }) => target === "pool shared");

/** Waits until a router knows of so many blocks of the pool. */
const untilPooled = (router: RunningRouter, external: number): Promise<Feed> =>
  waitFor(
    async () => {
      const feed = await poolFeed(router);
      return feed?.blocks.external === external && feed;
    },
    { what: `${external} blocks of the pool` },
  );

interface Candidate {
  readonly key: string;
  readonly terms: Readonly<Record<string, number>>;
  readonly signals: Readonly<Record<string, number | null>>;
  readonly pools: readonly { readonly pool: string; readonly blocks: number; readonly quality: string }[];
  readonly fetches: readonly { readonly from: string; readonly tokens: number; readonly ms: number | null }[];
}

async function explained(
  router: RunningRouter,
  prompt: readonly number[],
): Promise<Readonly<Record<string, Candidate>>> {
  const { status, json, text } = await router.admin("POST", "/admin/explain", completion(prompt));
  expect([status, text]).toEqual([200, text]);
  return Object.fromEntries((json.candidates as readonly Candidate[]).map((candidate) => [candidate.key, candidate]));
}

test("one engine computes, another one is chosen for what it can fetch, and says that it did", async () => {
  const { sims, engines, pools } = await poolFleet("vllm-0.32");
  const [holder, reader, outsider] = sims as [Sim, Sim, Sim];
  const config = { policy: "least_work", "kv-pools": pools };
  const router = await cacheRouter(rig, engines, { config, feeds: 4 });
  const prompt = tokensOf(1, 410);
  // Past the router, so that it knows by events alone.
  await post(`${holder.url}/v1/completions`, completion(prompt));
  const feed = await untilPooled(router, 25);
  expect(feed).toMatchObject({ state: "live", floatingBlocks: 0, unplacedBlocks: 0, unusable: null });

  const seen = await explained(router, prompt);
  expect(seen[reader.id]!.pools).toMatchObject([{ pool: "shared", blocks: 25, quality: "complete" }]);
  expect(seen[outsider.id]!.pools).toEqual([]);
  const signals = ({ id }: Sim) => {
    const { matchedTokens, matchedExternalTokens, matchedPoolTokens } = seen[id]!.signals;
    return [matchedTokens, matchedExternalTokens, matchedPoolTokens];
  };
  await waitFor(async () => (await explained(router, prompt))[holder.id]!.signals.matchedTokens === 400, {
    what: "the holder's own events",
  });
  expect(signals(reader)).toEqual([0, 400, 400]);
  expect(seen[reader.id]!.fetches).toEqual([{ from: "shared", tokens: 400, ms: null }]);
  expect(signals(outsider)).toEqual([0, 0, 0]);
  expect(seen[reader.id]!.terms.uncached_tokens).toBe(410 - 0.5 * 400);
  expect(seen[outsider.id]!.terms.uncached_tokens).toBe(410);
  // What the holder has itself it need not fetch.
  expect((await explained(router, prompt))[holder.id]!.signals).toMatchObject({ matchedPoolTokens: 0 });

  await router.admin("PATCH", `/admin/engines/${holder.id}`, { draining: true });
  const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
  expect(turn).toMatchObject({ status: 200, engine: reader.id, predicted: 400, cached: 400 });
  const transfers = (await call(`${reader.url}/sim/transfers`)).json;
  expect(transfers.totals).toMatchObject({ imported: 1 });
  expect((await router.metrics()).sum("espalier_pool_tokens_total")).toBe(400);
  expect(await cacheCounts(router)).toEqual({ predicted: 400, reported: 400, over: 0, under: 0 });
});

test("in a mesh one router reads the pool for all, and every router knows what is in it", async () => {
  const { sims, pools } = await poolFleet("sglang-0.5.23");
  const [holder, reader] = sims as [Sim, Sim, Sim];
  const inReachOfAll = pools.map((pool) => ({ ...pool, labels: {} }));
  const options = { config: { policy: "least_work", "kv-pools": inReachOfAll } };
  const routers = await meshRouters(rig, 2, sims, options);
  await untilRead(routers, 4);
  const prompt = tokensOf(2, 410);
  await post(`${holder.url}/v1/completions`, completion(prompt));
  for (const router of routers) {
    await untilPooled(router, 25);
    const { pools: known, signals } = (await explained(router, prompt))[reader.id]!;
    expect(known).toMatchObject([{ pool: "shared", blocks: 25, quality: "complete" }]);
    expect(signals).toMatchObject({ matchedExternalTokens: 400, matchedPoolTokens: 400 });
  }
  const feeds = await Promise.all(routers.map(poolFeed));
  expect(feeds.map((feed) => String(feed?.role)).sort()).toEqual(["backup", "owner"]);
  expect(new Set(feeds.map((feed) => feed?.owner)).size).toBe(1);
});
