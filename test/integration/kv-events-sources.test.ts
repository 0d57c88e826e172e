import { silentLogger, systemClock } from "@espalier/core";
import { createKvEventPublisher, type KvEventPublisher, type WireEvent } from "@espalier/engine-model/kv-events";
import { freePort, waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import {
  cacheRouter,
  createMovableClock,
  eventsOf,
  feedsOf,
  publishingSims,
  quietSims,
  untilFeed,
} from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import type { Json } from "./client.ts";
import { jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const complete = (router: RunningRouter, prompt: readonly number[], fields: Json = {}) =>
  ask(router, "/v1/completions", { prompt, max_tokens: 1, ...fields });

/** The blocks of a prompt as an engine announces them. */
function stored(prompt: readonly number[], fields: { readonly adapter?: string; readonly cacheSalt?: string } = {}) {
  const blocks = Math.floor(prompt.length / 16);
  return {
    type: "stored",
    hashes: Array.from({ length: blocks }, (_, at) => BigInt(prompt[0]! * 1_000 + at + 1)),
    parentHash: undefined,
    tokens: Uint32Array.from(prompt.slice(0, 16 * blocks)),
    blockSize: 16,
    adapter: fields.adapter,
    cacheSalt: fields.cacheSalt,
  } satisfies WireEvent;
}

interface PublisherPlace {
  readonly connect?: string;
  readonly port?: number;
  readonly topic: string;
}

async function publisher(place: PublisherPlace): Promise<KvEventPublisher> {
  const made = createKvEventPublisher({ ...place, dialect: "vllm-0.32", clock: systemClock, logger: silentLogger });
  await made.start();
  rig.own(() => made.stop());
  return made;
}

describe("engines are asked where their events are", () => {
  test.each([
    ["vllm-0.32", ["live"]],
    ["sglang-0.5.23", ["live"]],
    // It publishes, but says so nowhere.
    ["vllm-0.23", []],
  ] as const)("%s", async (dialect, states) => {
    const [sim] = await publishingSims(rig, 1, { dialect });
    const router = await cacheRouter(rig, [sim!], { feeds: states.length });
    const feeds = await feedsOf(router);
    expect(feeds.map(({ state }) => state)).toEqual(states);
    const { port, replayPort } = await eventsOf(sim!);
    for (const feed of feeds) {
      expect(feed).toMatchObject({
        target: sim!.id,
        endpoint: `tcp://127.0.0.1:${port}`,
        replayEndpoint: `tcp://127.0.0.1:${replayPort}`,
        mode: "connect",
        topic: "",
      });
    }
  });

  test("those that publish none have no feed and no series", async () => {
    const sims = await quietSims(rig, 2);
    const router = await cacheRouter(rig, sims, { feeds: 0 });
    expect(await feedsOf(router)).toEqual([]);
    const names = (await router.metrics()).samples.map(({ name }) => name);
    expect(names.filter((name) => name.startsWith("espalier_kv_feed_"))).toEqual([]);
  });

  test("and are not asked when events are off", async () => {
    const sims = await publishingSims(rig, 1);
    const router = await cacheRouter(rig, sims, { config: { "kv-events": { mode: "off" } }, feeds: 0 });
    for (let turn = 0; turn < 2; turn++) await complete(router, tokensOf(1, 100));
    expect(await feedsOf(router)).toEqual([]);
    expect((await eventsOf(sims[0]!)).subscriptions).toBe(0);
    expect(await complete(router, tokensOf(1, 100))).toMatchObject({ predicted: 96, cached: 96 });
  });
});

test("what an engine's entry says goes before what the engine says", async () => {
  const [sim, other] = await publishingSims(rig, 2);
  const { port } = await eventsOf(other!);
  const entry = { url: sim!.url, "kv-events": { endpoint: `tcp://127.0.0.1:${port}`, topic: "" } };
  const router = await cacheRouter(rig, [entry]);
  expect(await feedsOf(router)).toMatchObject([
    { target: sim!.id, endpoint: `tcp://127.0.0.1:${port}`, replayEndpoint: null, state: "partial" },
  ]);
});

test("an endpoint where nobody is leaves the feed waiting, and what was sent is believed", async () => {
  const [sim] = await quietSims(rig, 1);
  const clock = createMovableClock();
  const entry = { url: sim!.url, "kv-events": `tcp://127.0.0.1:${await freePort()}` };
  const router = await cacheRouter(rig, [entry], { feeds: 0, clock });
  await untilFeed(router, sim!, "stale connecting");
  await complete(router, tokensOf(1, 100));
  clock.advance(60_000);
  expect(await complete(router, tokensOf(1, 100))).toMatchObject({ predicted: 96, cached: 96 });
  clock.advance(600_001);
  expect(await complete(router, tokensOf(1, 100))).toMatchObject({ predicted: 0, cached: 96 });
});

test.each([
  ["placement-ttl", { "placement-ttl": "5s" }, 5_001],
  ["placement-tokens", { "placement-tokens": 1_024 }, 0],
])("%s bounds what is believed without events", async (_, prefix, passedMs) => {
  // Its metrics tell nothing, so that the option counts.
  const engine = await jsonEngine(rig, '{"usage":{"prompt_tokens":100}}');
  const clock = createMovableClock();
  const config = { policy: "cache_aware", prefix };
  const router = await rig.router({ engines: [engine.url], config, clock });
  const predicted = async (prompt: number) => (await complete(router, tokensOf(prompt, 500))).predicted;
  await predicted(1);
  expect(await predicted(1)).toBe(496);
  clock.advance(passedMs);
  if (passedMs === 0) for (const prompt of [2, 3]) await predicted(prompt);
  expect(await predicted(1)).toBeLessThan(100);
});

describe("engines that dial", () => {
  test("are told apart by their topics", async () => {
    const sims = await quietSims(rig, 3);
    const listen = `tcp://127.0.0.1:${await freePort()}`;
    const router = await rig.router({
      engines: sims.map(({ url }) => url),
      config: { policy: "cache_aware", "kv-events": { listen } },
    });
    const publishers = await Promise.all(sims.map(({ id }) => publisher({ connect: listen, topic: id })));
    await waitFor(() => publishers.every(({ subscriptions }) => subscriptions > 0), { what: "subscriptions" });
    const prompts = sims.map((_, at) => tokensOf(at, 200));
    for (const [at, each] of publishers.entries()) each.publish([stored(prompts[at]!)]);
    for (const sim of sims) await untilFeed(router, sim, "live complete");
    for (const [at, prompt] of prompts.entries()) {
      expect(await complete(router, prompt)).toMatchObject({ engine: sims[at]!.id, predicted: 192 });
    }
    expect(await feedsOf(router)).toMatchObject(
      sims.map(({ id }) => ({ target: id, mode: "bind", endpoint: listen, topic: id, blocks: { gpu: 12 } })),
    );
  });

  test("begin a new epoch when they dial again with other events", async () => {
    const [sim] = await quietSims(rig, 1);
    const listen = `tcp://127.0.0.1:${await freePort()}`;
    const router = await rig.router({
      engines: [sim!.url],
      config: { policy: "cache_aware", "kv-events": { listen } },
    });
    const first = await publisher({ connect: listen, topic: sim!.id });
    await waitFor(() => first.subscriptions > 0, { what: "subscription" });
    first.publish([stored(tokensOf(1, 200))]);
    await untilFeed(router, sim!, "live complete");
    await first.stop();
    await untilFeed(router, sim!, "stale socket-lost");
    const second = await publisher({ connect: listen, topic: sim!.id });
    await waitFor(() => second.subscriptions > 0, { what: "subscription" });
    second.publish([stored(tokensOf(2, 100))]);
    await expect
      .poll(() => feedsOf(router), { timeout: 5_000 })
      .toMatchObject([{ state: "live", reason: "complete", restarts: 1, lastSequence: 0, blocks: { gpu: 6 } }]);
    expect((await complete(router, tokensOf(2, 100))).predicted).toBe(96);
    expect((await complete(router, tokensOf(1, 200))).predicted).toBe(0);
  });

  test("may be ranks of one engine: the request names the one that has its prompt", async () => {
    const engine = await jsonEngine(rig, '{"usage":{"prompt_tokens":200}}');
    const listen = `tcp://127.0.0.1:${await freePort()}`;
    const router = await rig.router({
      engines: [{ url: engine.url, ranks: 3 }],
      config: { policy: "cache_aware", "kv-events": { listen } },
    });
    const keys = [engine.id, `${engine.id}#1`, `${engine.id}#2`];
    const ranks = await Promise.all(keys.map((topic) => publisher({ connect: listen, topic })));
    await waitFor(() => ranks.every(({ subscriptions }) => subscriptions > 0), { what: "subscriptions" });
    for (const [rank, each] of ranks.entries()) each.publish([stored(tokensOf(rank, 200))]);
    await waitFor(async () => (await feedsOf(router)).filter(({ blocks }) => blocks.gpu === 12).length === 3, {
      what: "blocks of every rank",
    });
    for (const rank of [2, 0, 1]) {
      expect((await complete(router, tokensOf(rank, 200))).predicted).toBe(192);
      expect(engine.requests.at(-1)?.headers["x-data-parallel-rank"]).toBe(String(rank));
    }
  });
});

test("the ranks of an engine that listens are on the ports after its first", async () => {
  const engine = await jsonEngine(rig, '{"usage":{"prompt_tokens":200}}');
  const ranks = await waitFor(
    async () => {
      const first = await publisher({ topic: "kv@rank" });
      const port = Number(new URL(first.endpoint).port);
      const second = await publisher({ topic: "kv@rank", port: port + 1 }).catch(() => undefined);
      return second && [first, second];
    },
    { what: "two ports in a row" },
  );
  const router = await rig.router({
    engines: [{ url: engine.url, ranks: 2, "kv-events": { endpoint: ranks[0]!.endpoint, topic: "kv" } }],
    config: { policy: "cache_aware" },
  });
  await waitFor(() => ranks.every(({ subscriptions }) => subscriptions > 0), { what: "subscriptions" });
  for (const [rank, each] of ranks.entries()) each.publish([stored(tokensOf(rank, 200))]);
  await waitFor(async () => (await feedsOf(router)).filter(({ blocks }) => blocks.gpu === 12).length === 2, {
    what: "blocks of both ranks",
  });
  for (const rank of [1, 0, 1]) {
    await complete(router, tokensOf(rank, 200));
    expect(engine.requests.at(-1)?.headers["x-data-parallel-rank"]).toBe(String(rank));
  }
});

test("salts and adapters of announced blocks are those of requests", async () => {
  const sims = await publishingSims(rig, 1, { adapters: ["adapter-a"] });
  const listen = `tcp://127.0.0.1:${await freePort()}`;
  const router = await cacheRouter(rig, sims, { config: { "kv-events": { listen } }, feeds: 0 });
  const dialling = await publisher({ connect: listen, topic: sims[0]!.id });
  await waitFor(() => dialling.subscriptions > 0, { what: "subscription" });
  const spaces: readonly (readonly [number, { adapter?: string; cacheSalt?: string }, Json])[] = [
    [1, {}, {}],
    [2, { adapter: "adapter-a" }, { model: "adapter-a" }],
    [3, { cacheSalt: "tenant" }, { cache_salt: "tenant" }],
    [4, { adapter: "adapter-a", cacheSalt: "tenant" }, { model: "adapter-a", cache_salt: "tenant" }],
  ];
  dialling.publish(spaces.map(([number, space]) => stored(tokensOf(number, 100), space)));
  await untilFeed(router, sims[0]!, "live complete");
  for (const [number] of spaces) {
    for (const [other, , fields] of spaces) {
      const predicted = other === number ? 96 : 0;
      expect((await complete(router, tokensOf(number, 100), { ...fields, stream: false })).predicted).toBe(predicted);
    }
  }
});

test("chunks of LMCache's server in an engine's feed count as external memory, under the name of the pool", async () => {
  const [sim] = await quietSims(rig, 1);
  const listen = `tcp://127.0.0.1:${await freePort()}`;
  const router = await rig.router({
    engines: [sim!.url],
    config: { policy: "cache_aware", "kv-events": { listen }, "kv-pools": [{ name: "LMCache" }] },
  });
  const feed = await publisher({ connect: listen, topic: sim!.id });
  await waitFor(() => feed.subscriptions > 0, { what: "subscription" });
  const prompt = tokensOf(1, 700);
  const chunk = (at: number): WireEvent => ({
    ...stored(prompt.slice(256 * at, 256 * (at + 1))),
    ...{ hashes: [BigInt(77 + at)], parentHash: at === 0 ? undefined : BigInt(76 + at) },
    ...{ blockSize: 256, medium: "CPU" },
  });
  feed.publish([stored(tokensOf(3, 100)), chunk(0), chunk(1)]);
  await waitFor(async () => (await feedsOf(router))[0]?.blocks.external === 32, { what: "two chunks" });
  const explained = async (tokens: readonly number[]) => {
    const { json } = await router.admin("POST", "/admin/explain", { model: "tiny", prompt: tokens, max_tokens: 1 });
    const [{ facts, fetches, pools }] = json.candidates as [Json];
    return { blocks: (facts as Json).blocks, fetches, pools };
  };
  expect(await explained(prompt)).toEqual({
    blocks: { gpu: 0, cpu: 0, disk: 0, external: 32 },
    fetches: [{ from: "LMCache", tokens: 512, ms: null }],
    pools: [],
  });
  // One that parts inside the second chunk finds the first.
  expect(await explained([...prompt.slice(0, 400), ...tokensOf(2, 100)])).toMatchObject({
    blocks: { external: 16 },
    fetches: [{ from: "LMCache", tokens: 256, ms: null }],
  });
  feed.publish([{ type: "removed", hashes: [77n], medium: "CPU" }]);
  await waitFor(async () => (await feedsOf(router))[0]?.blocks.external === 16, { what: "one chunk" });
  expect((await explained(prompt)).fetches).toEqual([]);
});
