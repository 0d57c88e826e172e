import { createSeededRandom, type Random } from "@espalier/core";
import type { EventDialect } from "@espalier/engine-model/kv-events";
import { startEngineSim } from "@espalier/engine-sim";
import { expect, onTestFinished, test } from "vitest";
import { askReplay, breakEvents, channelOf, type FollowedEvents, followEvents } from "./event-feed.ts";
import { at, clientOf, type Json, startSim, type TestSim, untilIdle } from "./sim-client.ts";

const chat = "/v1/chat/completions";

/** Leads a conversation of a few turns, giving up now and then in the middle of an answer. */
async function converse(sim: TestSim, random: Random, name: string): Promise<void> {
  const system = { role: "system", content: `You are assistant ${random.integer(3)} of the museum.`.repeat(6) };
  const messages: Json[] = [system];
  for (let turn = 0; turn < 2 + random.integer(4); turn++) {
    messages.push({ role: "user", content: `question ${turn} of ${name} `.repeat(1 + random.integer(12)) });
    const body = { messages, max_tokens: 1 + random.integer(60) };
    if (random.integer(6) === 0) {
      const leaving = new AbortController();
      const request = fetch(sim.url + chat, {
        method: "POST",
        body: JSON.stringify({ ...body, stream: true }),
        signal: leaving.signal,
      });
      await request.then(
        () => leaving.abort(),
        () => {},
      );
      return;
    }
    const answer = await sim.post(chat, body).catch(() => undefined);
    // A restart tears connections down.
    if (answer?.status !== 200) return;
    messages.push(at(answer.json, "choices", 0, "message") as Json);
  }
}

async function load(sim: TestSim, random: Random, conversations: number): Promise<void> {
  const names = Array.from({ length: conversations }, (_, index) => `conversation ${random.integer(1e6)}-${index}`);
  await Promise.all(names.map((name) => converse(sim, createSeededRandom(random.integer(2 ** 31)), name)));
  await untilIdle(sim);
}

/** Both sides agree on what the engine holds. */
async function agrees(sim: TestSim, events: FollowedEvents): Promise<void> {
  await events.caughtUp();
  expect(events.holdings.blocks).toBe((await sim.state()).stats.cachedBlocks);
}

const flavourOf = (dialect: EventDialect): "vllm" | "sglang" => (dialect === "vllm-0.32" ? "vllm" : "sglang");

test.each(["vllm-0.32", "sglang-0.5.23"] as const)(
  "%s: eight engines under load publish all that they cache and evict",
  async (dialect) => {
    const seed = 11;
    const random = createSeededRandom(seed);
    const sim = await startEngineSim({
      engines: 8,
      speed: 200,
      models: ["tiny"],
      kvEvents: { dialect },
      tokenizer: "espalier-tiny",
      parameters: { flavour: flavourOf(dialect), blockSize: 16, blockCount: 90, maxBatchedTokens: 256 },
    });
    onTestFinished(() => sim.stop());
    const engines = sim.engines.map(({ url }) => clientOf(url, sim.stop));
    const feeds = await Promise.all(engines.map((engine) => followEvents(engine)));
    await Promise.all(engines.map((engine) => load(engine, createSeededRandom(random.integer(2 ** 31)), 10)));
    for (const [index, engine] of engines.entries()) {
      const events = feeds[index] as FollowedEvents;
      await agrees(engine, events);
      await events.is("live complete");
      expect(events.epochs, `seed ${seed}`).toBe(1);
      const { nextSequence } = await channelOf(engine);
      expect(events.messages).toHaveLength(nextSequence);
      const reported = events.feed.describe();
      expect(reported).toMatchObject({ undecodedEvents: 0, refusedMessages: 0, gaps: 0, duplicates: 0 });
    }
    const removals = feeds.flatMap((events) => events.events()).filter(({ kind }) => kind === "removed");
    expect(removals.length).toBeGreaterThan(0);
  },
  40_000,
);

/**
 * What goes wrong round by round without anything being lost for good: a replay has it. A feed asks for no more than
 * eight replays in ten seconds.
 */
const rounds: readonly { readonly fault: Json; readonly path?: string }[] = [
  { fault: { kind: "silence", count: 4 } },
  { fault: { kind: "duplicate", count: 9 }, path: "/reset_prefix_cache" },
  { fault: { kind: "disorder" } },
  { fault: { kind: "duplicate", count: 2 }, path: "/sim/reset" },
  { fault: { kind: "silence", delayMs: 50 } },
];

test("through faults, a restart and cache resets, a feed ends up with what the engine holds", async () => {
  const seed = 5;
  const random = createSeededRandom(seed);
  const parameters = { blockSize: 16, blockCount: 200, maxBatchedTokens: 256 };
  const sim = await startSim({ speed: 500, kvEvents: { dialect: "vllm-0.32" }, parameters });
  const events = await followEvents(sim);
  for (const [round, { fault, path }] of rounds.entries()) {
    await breakEvents(sim, fault);
    const loading = load(sim, random, 5);
    if (path !== undefined) await sim.post(path, "");
    await loading;
    await sim.del("/sim/kv-events");
    // The last message may be one that was not sent: the next one shows the hole.
    await sim.post(chat, {
      messages: [{ role: "user", content: `the end of round ${round}`.repeat(9) }],
      max_tokens: 1,
    });
    await events.is("live complete");
    await agrees(sim, events);
  }
  expect(events.epochs, `seed ${seed}`).toBe(2);
}, 40_000);

test("a replay while messages are published is in order and whole", async () => {
  const sim = await startSim({
    speed: 200,
    kvEvents: { dialect: "vllm-0.32" },
    parameters: { blockSize: 16, blockCount: 200 },
  });
  const loading = load(sim, createSeededRandom(1), 20);
  for (let round = 0; round < 10; round++) {
    const from = (await channelOf(sim)).nextSequence;
    const { sequences } = await askReplay(sim, Math.floor(from / 2));
    expect(sequences.length).toBeGreaterThanOrEqual(from - Math.floor(from / 2));
    expect(sequences).toEqual(sequences.map((_, index) => Math.floor(from / 2) + index));
  }
  await loading;
}, 20_000);
