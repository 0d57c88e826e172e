import { createSeededRandom, systemClock, systemRandom } from "@espalier/core";
import { createEventDecoder, type EventDialect, eventDialects } from "@espalier/engine-model/kv-events";
import { startEngineSim } from "@espalier/engine-sim";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { askReplay, channelOf, flavourOf, followEvents, listenToEvents, plainEvents } from "./event-feed.ts";
import { at, clientOf, prompt, startSim, type TestSim, untilIdle } from "./sim-client.ts";

const completions = "/v1/completions";

const complete = (sim: TestSim, body: object) => sim.post(completions, { max_tokens: 1, ...body });

async function startPublishing(dialect: EventDialect, more: object = {}, parameters: object = {}): Promise<TestSim> {
  const flavour = flavourOf(dialect);
  return startSim({
    kvEvents: { dialect, ...more },
    adapters: ["adapter-a"],
    parameters: { flavour, blockSize: 16, ...parameters },
  });
}

test.each(eventDialects)(
  "%s: what is stored and removed is published step by step, decoded without a loss",
  async (dialect) => {
    const sim = await startPublishing(dialect, { topic: "kv-events" }, { blockCount: 8 });
    const raw = await listenToEvents(sim, "kv-ev");
    const begunS = systemClock.wallMs() / 1_000;
    await complete(sim, { prompt: prompt(1, 70) });
    await complete(sim, { prompt: prompt(2, 100) });
    const { nextSequence } = await channelOf(sim);
    const first = dialect.startsWith("sglang") ? 1 : 0;
    await raw.received(nextSequence - first);
    expect(raw.sequences).toEqual(Array.from({ length: nextSequence - first }, (_, index) => first + index));
    const decoder = createEventDecoder();
    const events = raw.messages.flatMap(({ topic, payload }) => {
      expect(topic).toBe("kv-events");
      const report = decoder.decode(payload);
      expect(report).toMatchObject({ refused: undefined, unknownEvents: 0, malformedEvents: 0, unknownMedia: 0 });
      expect(decoder.batch.rank).toBe(0);
      expect(decoder.batch.timestampS).toBeGreaterThanOrEqual(begunS);
      expect(decoder.batch.timestampS).toBeLessThanOrEqual(systemClock.wallMs() / 1_000);
      return plainEvents(decoder.batch);
    });
    const stored = events.filter(({ kind }) => kind === "stored");
    expect(stored.flatMap(({ tokens }) => tokens)).toEqual([...prompt(1, 64), ...prompt(2, 96)]);
    expect(stored.every(({ blockSize }) => blockSize === 16)).toBe(true);
    const removed = events.filter(({ kind }) => kind === "removed").flatMap(({ hashes }) => hashes);
    expect(removed.length).toBeGreaterThan(0);
    const hashes = stored.flatMap((event) => event.hashes);
    for (const hash of removed) expect(hashes).toContain(hash);
  },
);

test.each(eventDialects)("%s: who comes late gets everything by replay", async (dialect) => {
  const sim = await startPublishing(dialect);
  for (let round = 0; round < 5; round++) await complete(sim, { prompt: prompt(round, 40) });
  const events = await followEvents(sim);
  await events.is("live complete");
  await events.caughtUp();
  expect(events.messages.map(({ sequence }) => sequence)).toEqual(
    Array.from({ length: (await channelOf(sim)).nextSequence }, (_, index) => index),
  );
  for (let round = 0; round < 5; round++) expect(events.holdings.match(prompt(round, 40), { limit: 40 })).toBe(32);
  await complete(sim, { prompt: prompt(9, 40) });
  await events.caughtUp();
  expect(events.holdings.match(prompt(9, 40), { limit: 40 })).toBe(32);
  expect(events.holdings.blocks).toBe((await sim.state()).stats.cachedBlocks);
  const { frameCounts } = await askReplay(sim);
  const frames = dialect === "vllm-0.32" || dialect === "sglang-0.5.23" ? 4 : 3;
  expect(new Set(frameCounts)).toEqual(new Set([frames]));
});

/** What a dialect can tell apart besides tokens. */
const namespaces: Readonly<Record<EventDialect, readonly ("adapter" | "salt")[]>> = {
  "vllm-0.23": ["adapter", "salt"],
  "vllm-0.32": ["adapter", "salt"],
  "sglang-0.5.23": ["salt"],
  "sglang-array": [],
  trtllm: [],
};

test.each(eventDialects)(
  "%s: on a random load, events tell exactly what the cache will report",
  async (dialect) => {
    const seed = 7;
    const random = createSeededRandom(seed);
    const sim = await startPublishing(dialect, {}, { blockCount: 60, maxBatchedTokens: 64 });
    const events = await followEvents(sim);
    const known = namespaces[dialect];
    const histories = Array.from({ length: 6 }, (_, index) => prompt(index, 20));
    const hits: number[] = [];
    for (let round = 0; round < 120; round++) {
      const tokens = [...(histories[random.integer(6)] as number[]), ...prompt(100 + round, random.integer(60))];
      const adapter = known.includes("adapter") && random.integer(4) === 0 ? "adapter-a" : undefined;
      const salt = known.includes("salt") && random.integer(4) === 0 ? `salt-${random.integer(2)}` : undefined;
      const space = { ...(adapter && { adapter }), ...(salt && { cacheSalt: salt }) };
      await events.caughtUp();
      const predicted = events.holdings.match(tokens, { limit: tokens.length - 1, ...space });
      const body = { prompt: tokens, max_tokens: 1 + random.integer(40), model: adapter ?? "tiny" };
      const { json } = await sim.post(completions, { ...body, ...(salt && { cache_salt: salt }) });
      const cached = at(json, "usage", "prompt_tokens_details", "cached_tokens");
      expect(cached, `seed ${seed}, round ${round}`).toBe(predicted);
      hits.push(predicted);
      // Some histories grow, and once in a while several requests run at once.
      if (random.integer(3) === 0 && tokens.length < 400) histories[random.integer(6)] = tokens;
      if (random.integer(10) > 0) continue;
      const several = Array.from({ length: 4 }, () => prompt(random.integer(6), 20 + random.integer(60)));
      await Promise.all(several.map((each) => complete(sim, { prompt: each, max_tokens: 20 })));
    }
    await events.caughtUp();
    expect(events.holdings.blocks).toBe((await sim.state()).stats.cachedBlocks);
    expect(events.events().some(({ kind }) => kind === "removed")).toBe(true);
    expect(hits.filter((hit) => hit > 0).length).toBeGreaterThan(20);
  },
  30_000,
);

test("generated tokens are published too, in vLLM as they fill blocks, in SGLang at the end", async () => {
  for (const dialect of ["vllm-0.32", "sglang-0.5.23"] as const) {
    const sim = await startPublishing(dialect);
    const events = await followEvents(sim);
    await complete(sim, { prompt: prompt(1, 16), max_tokens: 65 });
    await events.caughtUp();
    const stored = events.events().filter(({ kind }) => kind === "stored");
    expect(stored.map(({ hashes }) => hashes.length)).toEqual(dialect === "vllm-0.32" ? [1, 1, 1, 1, 1] : [1, 4]);
  }
});

test("several engines publish on ports of their own, counted up from a fixed one", async () => {
  const free = await startEngineSim({ engines: 3, kvEvents: { dialect: "auto" }, speed: 1_000, models: ["tiny"] });
  const places = await Promise.all(free.engines.map(async ({ url }) => channelOf(clientOf(url, free.stop))));
  const ports = places.flatMap(({ port, replayPort }) => [port, replayPort]);
  expect(new Set(ports).size).toBe(6);
  await free.stop();
  // Below the ports that systems give out by themselves, so few are taken.
  let port = 0;
  const start = () => {
    port = 20_000 + 4 * systemRandom.integer(2_000);
    return startEngineSim({ engines: 2, kvEvents: { dialect: "auto", port } }).catch(() => undefined);
  };
  const fixed = await waitFor(start, { what: "four free ports" });
  onTestFinished(() => fixed.stop());
  const fixedPlaces = await Promise.all(fixed.engines.map(async ({ url }) => channelOf(clientOf(url, fixed.stop))));
  expect(fixedPlaces.map((place) => [place.port, place.replayPort])).toEqual([
    [port, port + 1],
    [port + 2, port + 3],
  ]);
});

test("a taken port of events fails the start and leaves nothing open", async () => {
  const first = await startSim({ kvEvents: { dialect: "auto" } });
  const { port } = await channelOf(first);
  await expect(startEngineSim({ kvEvents: { dialect: "auto", port } })).rejects.toThrow(/in use/i);
});

test("without the option there are no events, no sockets and no work for them", async () => {
  const sim = await startSim();
  await complete(sim, { prompt: prompt(1, 100) });
  expect((await sim.get("/sim/kv-events")).status).toBe(404);
  expect((await sim.post("/sim/kv-events", { kind: "gap" })).status).toBe(404);
  expect((await sim.del("/sim/kv-events")).status).toBe(404);
  expect((await sim.state()).kvEvents).toBeNull();
});

test("a history of so many messages is kept, and not one more", async () => {
  const sim = await startPublishing("vllm-0.32", { bufferSteps: 4 });
  for (let round = 0; round < 4; round++) await complete(sim, { prompt: prompt(round, 20) });
  expect((await askReplay(sim)).sequences).toEqual([0, 1, 2, 3]);
  await complete(sim, { prompt: prompt(5, 20) });
  expect((await askReplay(sim)).sequences).toEqual([1, 2, 3, 4]);
  expect((await askReplay(sim, 3)).sequences).toEqual([3, 4]);
  expect((await askReplay(sim, 5)).sequences).toEqual([]);
  const events = await followEvents(sim);
  await events.is("partial history-truncated");
});

test("without replay there is no second port, and who comes late knows a part", async () => {
  const sim = await startPublishing("vllm-0.32", { replay: false });
  await complete(sim, { prompt: prompt(1, 40) });
  expect(await channelOf(sim)).toMatchObject({ replayPort: null, nextSequence: 1 });
  const events = await followEvents(sim);
  await complete(sim, { prompt: prompt(2, 40) });
  await events.is("partial joined-late");
  expect(events.messages.map(({ sequence }) => sequence)).toEqual([1]);
});

test("a cache reset is told with the next step by vLLM, at once by SGLang", async () => {
  const vllm = await startPublishing("vllm-0.32");
  await complete(vllm, { prompt: prompt(1, 40) });
  await vllm.post("/reset_prefix_cache", "");
  expect((await channelOf(vllm)).nextSequence).toBe(1);
  await complete(vllm, { prompt: prompt(2, 40) });
  const reported = await followEvents(vllm);
  await reported.caughtUp();
  expect(reported.messages.map(({ events }) => events.map(({ kind }) => kind))).toEqual([
    ["stored"],
    ["cleared", "stored"],
  ]);
  expect(reported.holdings.blocks).toBe(2);

  const sglang = await startPublishing("sglang-0.5.23");
  await complete(sglang, { prompt: prompt(1, 40) });
  await untilIdle(sglang);
  const { nextSequence } = await channelOf(sglang);
  await sglang.post("/flush_cache", "");
  expect((await channelOf(sglang)).nextSequence).toBe(nextSequence + 1);
  const flushed = await followEvents(sglang);
  await flushed.caughtUp();
  expect(flushed.holdings.blocks).toBe(0);
  // It announces an empty cache when it starts, too.
  expect(flushed.messages[0]?.events.map(({ kind }) => kind)).toEqual(["cleared"]);
});

test("sleep clears the cache, which is told with the first step after it", async () => {
  const sim = await startPublishing("vllm-0.32");
  await complete(sim, { prompt: prompt(1, 40) });
  await sim.post("/sleep", {});
  await sim.post("/wake_up", {});
  expect((await channelOf(sim)).nextSequence).toBe(1);
  await complete(sim, { prompt: prompt(2, 40) });
  const events = await followEvents(sim);
  await events.caughtUp();
  expect(events.messages[1]?.events.map(({ kind }) => kind)).toEqual(["cleared", "stored"]);
});

test.each(["vllm-0.32", "sglang-0.5.23"] as const)("%s: a restart is an epoch on the same ports", async (dialect) => {
  const sim = await startPublishing(dialect);
  for (let round = 0; round < 3; round++) await complete(sim, { prompt: prompt(round, 40) });
  const events = await followEvents(sim);
  await events.is("live complete");
  const before = await channelOf(sim);
  const hashes = new Set(events.events().flatMap((event) => event.hashes));
  expect((await sim.post("/sim/reset", "")).status).toBe(200);
  const started = dialect === "vllm-0.32" ? 0 : 1;
  expect(await channelOf(sim)).toMatchObject({
    port: before.port,
    replayPort: before.replayPort,
    nextSequence: started,
  });
  await complete(sim, { prompt: prompt(0, 40) });
  await waitFor(() => events.epochs === 2, { what: "a second epoch", deadlineMs: 10_000 });
  await events.is("live complete");
  await events.caughtUp();
  expect(events.messages.map(({ sequence }) => sequence)[0]).toBe(0);
  expect(events.holdings.blocks).toBe(2);
  for (const hash of events.events().flatMap((event) => event.hashes)) expect(hashes.has(hash)).toBe(false);
  expect((await askReplay(sim, 2)).sequences).toEqual([]);
});
