import { createSeededRandom } from "@espalier/core";
import { createEventDecoder, type EventDialect, eventDialects } from "@espalier/engine-model/kv-events";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { expect, onTestFinished, test } from "vitest";
import { parseCommandLine } from "../src/command-line.ts";
import { channelOf, flavourOf, followEvents, listenToEvents, plainEvents } from "./event-feed.ts";
import { at, prompt, startSim, type TestSim } from "./sim-client.ts";

const completions = "/v1/completions";

/** Ten blocks of GPU memory: one prompt of 130 tokens. */
function startCramped(dialect: EventDialect, more: EngineSimOptions["parameters"] = {}): Promise<TestSim> {
  const parameters = { flavour: flavourOf(dialect), blockSize: 16, blockCount: 10, cpuBlocks: 40, ...more };
  return startSim({ kvEvents: { dialect }, parameters });
}

const complete = async (sim: TestSim, tokens: readonly number[]): Promise<unknown> => {
  const { json } = await sim.post(completions, { prompt: tokens, max_tokens: 1 });
  return at(json, "usage", "prompt_tokens_details", "cached_tokens");
};

test.each(eventDialects)("%s: a prompt goes to CPU memory and comes back, and both are told", async (dialect) => {
  const sim = await startCramped(dialect, { cpuLoadMsPerBlock: 3 });
  const events = await followEvents(sim);
  expect(await complete(sim, prompt(1, 130))).toBe(0);
  await complete(sim, prompt(2, 130));
  await events.caughtUp();
  const reported = events.events().filter(({ tier }) => tier === "cpu");
  expect(reported.reduce((sum, { hashes }) => sum + hashes.length, 0)).toBe(16);
  expect(reported.every(({ kind }) => kind === "stored")).toBe(true);
  expect(events.holdings.match(prompt(1, 130), { limit: 129 })).toBe(128);
  expect(events.holdings.cpuBlocks).toBe((await sim.state()).stats.cpuBlocks);
  expect(await complete(sim, prompt(1, 130))).toBe(128);
  const { stats } = await sim.state();
  expect(stats.loadedTokens).toBeGreaterThan(100);
  await events.caughtUp();
  expect(events.holdings.blocks).toBe((await sim.state()).stats.cachedBlocks);
});

test("vLLM gives the hashes of what it moves and no more, SGLang everything", async () => {
  for (const dialect of ["vllm-0.32", "sglang-0.5.23"] as const) {
    const sim = await startCramped(dialect);
    const raw = await listenToEvents(sim);
    await complete(sim, prompt(1, 130));
    await complete(sim, prompt(2, 130));
    const { nextSequence } = await channelOf(sim);
    const first = dialect === "sglang-0.5.23" ? 1 : 0;
    await raw.received(nextSequence - first);
    const decoder = createEventDecoder();
    const moved = raw.messages.flatMap(({ payload }) => {
      const report = decoder.decode(payload);
      expect(report).toMatchObject({ refused: undefined, malformedEvents: 0, unknownMedia: 0 });
      return plainEvents(decoder.batch).filter(({ tier }) => tier === "cpu");
    });
    expect(moved.reduce((sum, { hashes }) => sum + hashes.length, 0)).toBe(16);
    for (const { hashes, tokens, blockSize } of moved) {
      if (dialect === "vllm-0.32") expect([hashes.length, tokens.length, blockSize]).toEqual([1, 0, 0]);
      else expect([tokens.length, blockSize]).toEqual([16 * hashes.length, 16]);
    }
    const text = raw.messages.map(({ payload }) => Buffer.from(payload).toString("latin1")).join("");
    expect(text).toContain(dialect === "vllm-0.32" ? "CPU" : "CPU_PINNED");
  }
});

test.each(["vllm-0.32", "sglang-0.5.23"] as const)(
  "%s: on a random load, events tell exactly what both memories will give",
  async (dialect) => {
    const seed = 3;
    const random = createSeededRandom(seed);
    const sim = await startCramped(dialect, { blockCount: 40, cpuBlocks: 60, maxBatchedTokens: 64 });
    const events = await followEvents(sim);
    let hits = 0;
    for (let round = 0; round < 80; round++) {
      const tokens = [...prompt(random.integer(9), 20 + random.integer(300)), ...prompt(100 + round, 8)];
      await events.caughtUp();
      const predicted = events.holdings.match(tokens, { limit: tokens.length - 1 });
      expect(await complete(sim, tokens), `seed ${seed}, round ${round}`).toBe(predicted);
      if (predicted > 0) hits++;
    }
    const { stats } = await sim.state();
    await events.caughtUp();
    expect(hits).toBeGreaterThan(30);
    expect(stats.loadedTokens).toBeGreaterThan(1_000);
    expect(stats.cpuBlocks).toBeLessThanOrEqual(60);
    expect(events.holdings.cpuBlocks).toBe(stats.cpuBlocks);
    expect(events.events().some(({ kind, tier }) => kind === "removed" && tier === "cpu")).toBe(true);
  },
);

test("metrics tell of it where there is any", async () => {
  const pageOf = async (sim: TestSim): Promise<string> => (await sim.get("/metrics")).text;
  const sampleOf = (page: string, name: string): number =>
    Number(new RegExp(`^${name}\\{.*\\} (\\S+)$`, "m").exec(page)?.[1]);
  for (const flavour of ["vllm", "sglang"] as const) {
    const parameters = { flavour, blockSize: 16, blockCount: 10 };
    const sim = await startSim({ parameters: { ...parameters, cpuBlocks: 40 } });
    for (const first of [1, 2, 1]) await complete(sim, prompt(first, 130));
    const { stats } = await sim.state();
    const page = await pageOf(sim);
    if (flavour === "vllm") {
      expect(sampleOf(page, "vllm:external_prefix_cache_hits_total")).toBe(stats.loadedTokens);
      const missed = stats.prefixQueries! - stats.prefixHits!;
      expect(sampleOf(page, "vllm:external_prefix_cache_queries_total")).toBe(missed);
    } else {
      expect(sampleOf(page, "sglang:hicache_host_used_tokens")).toBe(16 * stats.cpuBlocks!);
      expect(sampleOf(page, "sglang:hicache_host_total_tokens")).toBe(640);
      expect(sampleOf(page, "sglang:cached_tokens_total")).toBe(128);
    }
    expect(await pageOf(await startSim({ parameters }))).not.toMatch(/external_prefix|hicache/);
  }
});

test("a restarted engine has nothing in either memory", async () => {
  const sim = await startCramped("vllm-0.32");
  for (const first of [1, 2]) await complete(sim, prompt(first, 130));
  expect((await sim.state()).stats.cpuBlocks).toBeGreaterThan(0);
  await sim.post("/sim/reset", {});
  expect((await sim.state()).stats).toMatchObject({ cpuBlocks: 0, cachedBlocks: 0 });
  expect(await complete(sim, prompt(1, 130))).toBe(0);
});

test("flags set its size and the cost of a block", async () => {
  const { options } = parseCommandLine(["--cpu-blocks", "500", "--cpu-load-ms", "0.25"]);
  expect(options.parameters).toMatchObject({ cpuBlocks: 500, cpuLoadMsPerBlock: 0.25 });
  expect(() => parseCommandLine(["--cpu-blocks", "many"])).toThrow("--cpu-blocks is a number");
  const sim = await startEngineSim({ ...options, speed: 1_000 });
  onTestFinished(() => sim.stop());
  await expect(startEngineSim({ parameters: { cpuBlocks: -1 } })).rejects.toThrow("cpuBlocks");
  await expect(startEngineSim({ parameters: { cpuBlocks: 16_777_217 } })).rejects.toThrow("cpuBlocks");
  await expect(startEngineSim({ parameters: { cpuLoadMsPerBlock: -1 } })).rejects.toThrow("cpuLoadMsPerBlock");
});
