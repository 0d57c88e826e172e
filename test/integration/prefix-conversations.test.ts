import { afterEach, describe, expect, test } from "vitest";
import { cacheCounts, cacheRouter, publishingSims, quietSims, untilHeard } from "./cache-rig.ts";
import { ask, converse, forms, type Turn, tokensOf, wordsOf } from "./cached-turns.ts";
import type { Json } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const policies = ["cache_aware", "least_work"] as const;

/** Six conversations that take turns with each other, in all forms of prompts: their turns, by conversation. */
async function play(
  router: RunningRouter,
  sims: readonly Sim[],
  afterTurn: () => Promise<void>,
): Promise<readonly (readonly Turn[])[]> {
  const conversations = Array.from({ length: 6 }, (_, at) =>
    converse(router, forms[at % forms.length]!, { seed: at }, sims[0]!),
  );
  const turns: Turn[][] = conversations.map(() => []);
  for (let round = 0; round < 4; round++) {
    for (const [at, conversation] of conversations.entries()) {
      turns[at]!.push(await conversation.turn());
      await afterTurn();
    }
  }
  return turns;
}

function expectAtHome(turns: readonly (readonly Turn[])[]): void {
  for (const conversation of turns) {
    expect(new Set(conversation.map(({ engine }) => engine)).size).toBe(1);
    for (const turn of conversation.slice(1)) expect(turn.cached).toBeGreaterThan(0.6 * turn.promptTokens);
  }
  expect(new Set(turns.map(([first]) => first!.engine)).size).toBeGreaterThan(1);
}

describe.each(policies)("%s", (policy) => {
  test("conversations stay with the engine that tells it has their cache", async () => {
    const sims = await publishingSims(rig, 3);
    const router = await cacheRouter(rig, sims, { config: { policy } });
    const turns = await play(router, sims, () => untilHeard(router, sims));
    expectAtHome(turns);
    for (const { predicted, cached } of turns.flat()) expect(predicted).toBe(cached);
  });

  test("and without events with the one that they were sent to; what it generated is not guessed at", async () => {
    const sims = await quietSims(rig, 3);
    const router = await cacheRouter(rig, sims, { config: { policy }, feeds: 0 });
    const turns = await play(router, sims, async () => {});
    expectAtHome(turns);
    for (const { predicted, cached } of turns.flat()) {
      expect(predicted).toBeLessThanOrEqual(cached);
      expect(cached - predicted).toBeLessThanOrEqual(32);
    }
  });

  test.each(["auto", "off"])("a system prompt is found by new sessions, with events %s", async (mode) => {
    const sims = await publishingSims(rig, 3);
    const router = await cacheRouter(rig, sims, {
      config: { policy, "kv-events": { mode } },
      feeds: mode === "auto" ? 3 : 0,
    });
    const system = wordsOf(7, 200);
    const heard = async () => (mode === "auto" ? untilHeard(router, sims) : undefined);
    const first = await converse(router, "chat", { seed: 1, system }, sims[0]!).turn();
    await heard();
    for (let seed = 2; seed < 8; seed++) {
      const turn = await converse(router, "chat", { seed, system }, sims[0]!).turn();
      await heard();
      expect([turn.engine, turn.predicted]).toEqual([first.engine, turn.cached]);
      expect(turn.cached).toBeGreaterThan(380);
    }
  });
});

test("policies that do not look at caches tell nothing of them", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims, { config: { policy: "round_robin" } });
  for (let turn = 0; turn < 2; turn++) {
    expect(await ask(router, "/v1/completions", { prompt: tokensOf(1, 100) })).toMatchObject({ predicted: Number.NaN });
  }
  expect((await router.metrics()).sum("espalier_prompts_total")).toBe(0);
});

test("predictions are counted beside what engines report", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  const turns: Turn[] = [];
  for (const form of forms) {
    const conversation = converse(router, form, { seed: 5 }, sims[0]!);
    for (let round = 0; round < 3; round++) {
      turns.push(await conversation.turn());
      await untilHeard(router, sims);
    }
  }
  const cached = turns.reduce((sum, turn) => sum + turn.cached, 0);
  expect(await cacheCounts(router)).toEqual({ predicted: cached, reported: cached, over: 0, under: 0 });
  const page = await router.metrics();
  expect(page.sum("espalier_prompts_total", { source: "tokens" })).toBe(turns.length);
  expect(page.sum("espalier_prompts_total")).toBe(turns.length);
});

/** A prompt that is in the cache as it is, and the same prompt with fields that make another of it. */
interface Separation {
  readonly name: string;
  readonly plain: Json;
  readonly other: Json;
}

const separations: readonly Separation[] = [
  { name: "a cache salt", plain: {}, other: { cache_salt: "tenant-a" } },
  { name: "another cache salt", plain: { cache_salt: "tenant-a" }, other: { cache_salt: "tenant-b" } },
  { name: "an adapter", plain: {}, other: { model: "adapter-a" } },
  { name: "another adapter", plain: { model: "adapter-b" }, other: { model: "adapter-a" } },
  { name: "an adapter and a salt", plain: { model: "adapter-a" }, other: { model: "adapter-a", cache_salt: "s" } },
];

test.each(["auto", "off"])("with events %s, caches of salts and adapters are kept apart", async (mode) => {
  const sims = await publishingSims(rig, 1, { adapters: ["adapter-a", "adapter-b"] });
  const router = await cacheRouter(rig, sims, { config: { "kv-events": { mode } }, feeds: mode === "auto" ? 1 : 0 });
  for (const [at, { name, plain, other }] of separations.entries()) {
    for (const body of [{ prompt: tokensOf(at, 130) }, { prompt: wordsOf(at, 200) }]) {
      const hits: Turn[] = [];
      for (const fields of [plain, plain, other, other]) {
        hits.push(await ask(router, "/v1/completions", { ...body, ...fields, max_tokens: 1 }));
        if (mode === "auto") await untilHeard(router, sims);
      }
      expect(hits.map(({ predicted }) => predicted)).toEqual(hits.map(({ cached }) => cached));
      expect(
        hits.map(({ cached }) => cached > 100),
        name,
      ).toEqual([false, true, false, true]);
    }
  }
});

test("an empty cache salt is none", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  const body = { prompt: tokensOf(1, 100), max_tokens: 1 };
  await ask(router, "/v1/completions", body);
  await untilHeard(router, sims);
  expect(await ask(router, "/v1/completions", { ...body, cache_salt: "" })).toMatchObject({ predicted: 96 });
});
