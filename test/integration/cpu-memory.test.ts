/** Engines that copy prompts to CPU memory: what routers know of it, and what they do with that. */
import { createSeededRandom } from "@espalier/core";
import { afterEach, describe, expect, test } from "vitest";
import { cacheCounts, cacheRouter, createMovableClock, feedsOf, publishingSims, untilHeard } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { type Json, post } from "./client.ts";
import { meshRouters, untilFolded, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** GPU memory for 480 tokens, CPU memory for 3,200. */
const cramped = { blockCount: 30, cpuBlocks: 200, cpuLoadMsPerBlock: 0.5 } as const;

const completion = (prompt: readonly number[]) => ({ model: "tiny", prompt, max_tokens: 1 });

/** Has an engine compute other prompts until it holds nothing else in GPU memory. */
async function displace(sim: Sim): Promise<void> {
  for (const first of [701, 702]) await post(`${sim.url}/v1/completions`, completion(tokensOf(first, 440)));
}

interface Candidate {
  readonly key: string;
  readonly terms: Readonly<Record<string, number>>;
  readonly signals: Readonly<Record<string, number | null>>;
  readonly facts: { readonly quality: string; readonly blocks: Json } | null;
}

async function explained(router: RunningRouter, prompt: readonly number[]): Promise<readonly Candidate[]> {
  const { status, json, text } = await router.admin("POST", "/admin/explain", completion(prompt));
  expect([status, text]).toEqual([200, text]);
  return json.candidates as readonly Candidate[];
}

describe.each(["vllm-0.32", "sglang-0.5.23"] as const)("%s", (dialect) => {
  test("what comes back from CPU memory was predicted to the token", async () => {
    const seed = 5;
    const random = createSeededRandom(seed);
    const parameters = { blockCount: 60, maxBatchedTokens: 64, cpuBlocks: 90 };
    const sims = await publishingSims(rig, 1, { dialect, parameters });
    const clock = createMovableClock();
    const router = await cacheRouter(rig, sims, { clock });
    const histories = Array.from({ length: 8 }, (_, at) => tokensOf(at, 60));
    let hits = 0;
    let losses = 0;
    for (let round = 0; round < 40; round++) {
      const at = random.integer(8);
      const prompt = [...histories[at]!, ...tokensOf(100 + round, random.integer(50))];
      const turn = await ask(router, "/v1/completions", { prompt, max_tokens: 1 + random.integer(30) });
      expect(turn.predicted, `seed ${seed}, round ${round}`).toBe(turn.cached);
      if (turn.cached > 0) hits++;
      else if (round > 12) losses++;
      histories[at] = prompt.length < 400 ? prompt : tokensOf(at, 60);
      await untilHeard(router, sims);
      // What was sent is believed for some seconds beside what is told.
      clock.advance(10_001);
    }
    const { stats } = (await sims[0]!.state()) as unknown as { stats: Readonly<Record<string, number>> };
    expect(hits).toBeGreaterThan(15);
    expect(losses).toBeGreaterThan(0);
    expect(stats.loadedTokens).toBeGreaterThan(500);
    const [feed] = await feedsOf(router);
    expect(feed!.blocks).toMatchObject({ cpu: stats.cpuBlocks, disk: 0, external: 0 });
    expect(await cacheCounts(router)).toMatchObject({ over: 0, under: 0 });
  });
});

describe("a prompt that is in the CPU memory of one of two engines", () => {
  test("is sent there, for the credit that the tier has; without credit the engine counts as empty", async () => {
    const sims = await publishingSims(rig, 2, { parameters: cramped });
    const clock = createMovableClock();
    const options = { clock };
    const router = await cacheRouter(rig, sims, { ...options, config: { policy: "least_work" } });
    const prompt = tokensOf(1, 390);
    const { engine } = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    const holder = sims.find(({ id }) => id === engine)!;
    await displace(holder);
    await untilHeard(router, sims);
    clock.advance(10_001);

    const own = (await explained(router, prompt)).find(({ key }) => key === holder.id)!;
    expect(own.facts?.quality).toBe("complete");
    const { matchedTokens = 0, matchedCpuTokens = 0 } = own.signals;
    expect(matchedCpuTokens).toBeGreaterThan(300);
    expect(matchedTokens! + matchedCpuTokens!).toBe(384);
    expect(own.facts?.blocks).toMatchObject({ gpu: matchedTokens! / 16, cpu: 24 - matchedTokens! / 16 });
    const terms = ({ terms }: Candidate): number => terms.uncached_tokens!;
    expect(terms(own)).toBeCloseTo(390 - matchedTokens! - 0.75 * matchedCpuTokens!, 6);

    const unaware = await cacheRouter(rig, sims, {
      ...options,
      config: { policy: { name: "least_work", "cpu-credit": 0 } },
    });
    await untilHeard(unaware, sims);
    const same = (await explained(unaware, prompt)).find(({ key }) => key === holder.id)!;
    expect(same.signals.matchedCpuTokens).toBe(matchedCpuTokens);
    expect(terms(same)).toBe(390 - matchedTokens!);

    const again = await ask(router, "/v1/completions", { prompt, max_tokens: 1 });
    expect(again).toMatchObject({ status: 200, engine: holder.id, predicted: 384, cached: 384 });
    const { stats } = (await holder.state()) as unknown as { stats: Readonly<Record<string, number>> };
    expect(stats.loadedTokens).toBe(matchedCpuTokens);
  });

  test("is known to be there by the router that reads no events of the engine, too", async () => {
    const sims = await publishingSims(rig, 2, { parameters: cramped });
    const routers = await meshRouters(rig, 2, sims);
    await untilRead(routers, 2);
    const prompt = tokensOf(1, 400);
    const { engine } = await ask(routers[0]!, "/v1/completions", { prompt, max_tokens: 1 });
    const holder = sims.find(({ id }) => id === engine)!;
    await displace(holder);
    await untilFolded(routers, sims);
    for (const router of routers) {
      const { facts } = (await explained(router, prompt)).find(({ key }) => key === holder.id)!;
      expect(facts?.blocks).toMatchObject({ gpu: expect.any(Number), cpu: expect.any(Number) });
      expect(Number(facts?.blocks.cpu)).toBeGreaterThan(18);
      expect(Number(facts?.blocks.gpu) + Number(facts?.blocks.cpu)).toBe(25);
    }
  });
});
