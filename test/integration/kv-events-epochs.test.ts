import { systemClock } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import {
  cacheCounts,
  cacheRouter,
  feedsOf,
  publishingSims,
  quietSims,
  restartEngine,
  untilFeed,
  untilHeard,
} from "./cache-rig.ts";
import { ask, type Conversation, converse, forms, type Turn, tokensOf } from "./cached-turns.ts";
import { openPost, post } from "./client.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const sum = (turns: readonly Turn[], of: "cached" | "promptTokens"): number =>
  turns.reduce((all, turn) => all + turn[of], 0);
const cachedShare = (turns: readonly Turn[]): number => sum(turns, "cached") / sum(turns, "promptTokens");

const turnOfEach = async (conversations: readonly Conversation[], afterTurn: () => Promise<void>): Promise<Turn[]> => {
  const turns: Turn[] = [];
  for (const conversation of conversations) {
    turns.push(await conversation.turn());
    await afterTurn();
  }
  return turns;
};

describe.each([true, false])("a router that starts anew before warm engines, with replay: %s", (replay) => {
  test.each(["vllm-0.32", "sglang-0.5.23"] as const)("%s", async (dialect) => {
    const sims = await publishingSims(rig, 3, { dialect, replay });
    let router = await cacheRouter(rig, sims);
    const served = {
      get url() {
        return router.url;
      },
    };
    const conversations = Array.from({ length: 9 }, (_, seed) =>
      converse(served, forms[seed % forms.length]!, { seed }, sims[0]!),
    );
    const turns = () => turnOfEach(conversations, () => untilHeard(router, sims));
    await turns();
    const before = await turns();
    await router.router.stop();
    // Nothing that this one knows came from the other.
    router = await cacheRouter(rig, sims);
    const first = await turnOfEach(conversations, async () => {});
    const second = await turnOfEach(conversations, async () => {});
    expect(cachedShare(second)).toBeGreaterThan(0.95 * cachedShare(before));
    if (replay) {
      expect(cachedShare(first)).toBeGreaterThan(0.95 * cachedShare(before));
      expect(first.map(({ engine }) => engine)).toEqual(before.map(({ engine }) => engine));
      expect((await feedsOf(router)).map(({ state }) => state)).toEqual(["live", "live", "live"]);
    }
    expect(second.map(({ engine }) => engine)).toEqual(first.map(({ engine }) => engine));
  });
});

test("a restarted engine has no credit, and soon is complete again", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  const prompt = tokensOf(1, 200);
  const turn = () => ask(router, "/v1/completions", { prompt, max_tokens: 1 });
  for (let epoch = 1; epoch <= 3; epoch++) {
    expect(await turn()).toMatchObject({ predicted: 0, cached: 0 });
    await untilHeard(router, sims);
    expect(await turn()).toMatchObject({ predicted: 192, cached: 192 });
    await restartEngine(sims[0]!);
    await waitFor(async () => (await feedsOf(router))[0]?.restarts === epoch, { what: "new epoch" });
    expect((await feedsOf(router))[0]?.blocks).toMatchObject({ gpu: 0 });
  }
});

test("an engine that tells nothing is found out by its own metrics", async () => {
  const sims = await quietSims(rig, 1);
  const router = await cacheRouter(rig, sims, { feeds: 0 });
  const turn = () => ask(router, "/v1/completions", { prompt: tokensOf(1, 200), max_tokens: 1 });
  await turn();
  expect(await turn()).toMatchObject({ predicted: 192, cached: 192 });
  const prompted = async () => {
    const [engine] = (await router.admin("GET", "/admin/engines")).json.engines as readonly {
      readonly targets: readonly { readonly signals: { readonly prompt_tokens_total: number } }[];
    }[];
    return engine!.targets[0]!.signals.prompt_tokens_total;
  };
  await waitFor(async () => (await prompted()) === 400, { what: "scraped counters" });
  await restartEngine(sims[0]!);
  await waitFor(async () => (await prompted()) < 400, { what: "scraped restart" });
  expect(await turn()).toMatchObject({ predicted: 0, cached: 0 });
});

test("an engine that goes leaves no feed and no credit behind", async () => {
  const sims = await publishingSims(rig, 2);
  const [gone, stays] = sims;
  const router = await cacheRouter(rig, sims);
  const homes = new Map<string, number[]>();
  // Prompts that nobody holds go to either of two idle engines.
  for (let seed = 1; seed <= 64 && homes.size < 2; seed++) {
    const prompt = tokensOf(seed, 200);
    homes.set((await ask(router, "/v1/completions", { prompt, max_tokens: 1 })).engine, prompt);
    await untilHeard(router, sims);
  }
  expect(homes.size).toBe(2);
  await gone!.stop();
  const feed = await untilFeed(router, gone!, "stale socket-lost");
  expect(feed.target).toBe(gone!.id);
  await waitFor(async () => (await router.engines()).some(({ state }) => state === "down"), { what: "down engine" });
  const turn = await ask(router, "/v1/completions", { prompt: homes.get(gone!.id), max_tokens: 1 });
  expect(turn).toMatchObject({ engine: stays!.id, predicted: 0, cached: 0 });
});

interface Stream {
  readonly startedMs: number;
  /** Whether text of the model had come when it failed. */
  readonly fate: "whole" | "failed" | "cut";
}

/** Streams that go on one after the other until they are told to stop, each with a history of its own that grows. */
function keepStreaming(router: RunningRouter, users: number) {
  const streams: Stream[] = [];
  let isOver = false;
  const stream = async (prompt: readonly number[]): Promise<Stream> => {
    const startedMs = systemClock.nowMs();
    const request = openPost(`${router.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 20, stream: true });
    let status = 0;
    let text = "";
    try {
      status = (await request.head).statusCode ?? 0;
      text = (await request.body).toString();
    } catch {
      text = request.received();
    }
    const isWhole = status === 200 && text.endsWith("data: [DONE]\n\n") && !text.includes('"error"');
    // Nothing is sent again once the answer's head has come, which is before its first text.
    const isCut = /^data: \{"id"/.test(text) || text.includes('"upstream_reset"');
    return { startedMs, fate: isWhole ? "whole" : isCut ? "cut" : "failed" };
  };
  const histories = Array.from({ length: users }, (_, user) => tokensOf(user, 150));
  const done = histories.map(async (history, user) => {
    for (let turn = 0; !isOver; turn++) {
      streams.push(await stream(history));
      if (history.length < 1_200) history.push(...tokensOf(100 * user + turn, 50));
    }
  });
  return {
    streams,
    histories,
    async end() {
      isOver = true;
      await Promise.all(done);
    },
  };
}

test("eight engines restarted one after the other under load: only what had begun fails, and no credit is stale", async () => {
  const sims = await publishingSims(rig, 8, { speed: 100 });
  const config = { retry: { "budget-ratio": 1, "budget-minimum": 100 }, breaker: { "consecutive-failures": 100 } };
  const router = await cacheRouter(rig, sims, { config });
  // Every engine publishes in its first epoch: a restart before that leaves nothing to be found out.
  for (const sim of sims)
    await post(`${sim.url}/v1/completions`, { model: "tiny", prompt: tokensOf(9, 32), max_tokens: 1 });
  await untilHeard(router, sims);
  const load = keepStreaming(router, 24);
  for (const sim of sims) {
    const wanted = load.streams.length + 30;
    await waitFor(() => load.streams.length > wanted, { what: "streams", deadlineMs: 10_000 });
    await restartEngine(sim);
    const feed = async () => (await feedsOf(router)).find(({ target }) => target === sim.id);
    const isKnown = async () => Number((await feed())?.restarts) > 0;
    await waitFor(isKnown, { what: `new epoch of ${sim.id}` });
  }
  await load.end();
  const count = (fate: Stream["fate"]) => load.streams.filter((stream) => stream.fate === fate).length;
  expect(count("failed")).toBe(0);
  expect(count("whole")).toBeGreaterThan(240);
  expect(count("cut")).toBeLessThan(sims.length * 24);
  await router.untilIdle();
  await untilHeard(router, sims);
  const before = await cacheCounts(router);
  for (const prompt of load.histories) {
    const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    expect(turn.predicted).toBeLessThanOrEqual(turn.cached);
    await untilHeard(router, sims);
  }
  const after = await cacheCounts(router);
  expect(after.over).toBe(before.over);
  const grown = (kind: string) => after[kind]! - before[kind]!;
  expect(grown("predicted")).toBeGreaterThan(0.8 * grown("reported"));
  expect(grown("reported")).toBeGreaterThan(1_000);
}, 60_000);
