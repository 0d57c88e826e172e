import { createVirtualTime, waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { askReplay, breakEvents, channelOf, followEvents, listenToEvents } from "./event-feed.ts";
import { startSim, type TestSim } from "./sim-client.ts";

const completions = "/v1/completions";

const startPublishing = (more: object = {}): Promise<TestSim> =>
  startSim({ kvEvents: { dialect: "vllm-0.32" }, parameters: { blockSize: 16 }, ...more });

let prompts = 0;

/** Makes the engine publish so many messages. */
async function publish(sim: TestSim, count: number): Promise<void> {
  for (let index = 0; index < count; index++) {
    const first = ++prompts * 1_000;
    await sim.post(completions, { prompt: Array.from({ length: 20 }, (_, each) => first + each), max_tokens: 1 });
  }
}

describe("as they come over the wire", () => {
  test("a gap uses up numbers that no replay has", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    await publish(sim, 1);
    expect(await breakEvents(sim, { kind: "gap" })).toMatchObject({ nextSequence: 2 });
    await publish(sim, 1);
    await breakEvents(sim, { kind: "gap", count: 5 });
    await publish(sim, 1);
    await raw.received(3);
    expect(raw.sequences).toEqual([0, 2, 8]);
    expect((await askReplay(sim)).sequences).toEqual([0, 2, 8]);
  });

  test("a duplicate is the same message again", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    await breakEvents(sim, { kind: "duplicate", count: 2 });
    await publish(sim, 3);
    const messages = await raw.received(5);
    expect(raw.sequences).toEqual([0, 0, 1, 1, 2]);
    expect(messages[1]).toEqual(messages[0]);
    expect((await askReplay(sim)).sequences).toEqual([0, 1, 2]);
    expect((await channelOf(sim)).faults).toEqual([]);
  });

  test("disorder swaps neighbours, pair by pair", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    await breakEvents(sim, { kind: "disorder", count: 2 });
    await publish(sim, 5);
    await raw.received(5);
    expect(raw.sequences).toEqual([1, 0, 3, 2, 4]);
    expect((await askReplay(sim)).sequences).toEqual([0, 1, 2, 3, 4]);
  });

  test("junk has a number and nothing that can be decoded", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    await breakEvents(sim, { kind: "junk", count: 2 });
    await publish(sim, 1);
    const messages = await raw.received(3);
    expect(messages.map(({ sequence, payload }) => [sequence, payload.length > 1])).toEqual([
      [0, false],
      [1, false],
      [2, true],
    ]);
  });

  test("silence loses messages that a replay still has", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    await breakEvents(sim, { kind: "silence", count: 2 });
    await publish(sim, 3);
    await raw.received(1);
    expect(raw.sequences).toEqual([2]);
    expect((await askReplay(sim)).sequences).toEqual([0, 1, 2]);
  });

  test("silence without an end lasts until it is cleared", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    expect(await breakEvents(sim, { kind: "silence" })).toMatchObject({ faults: [{ kind: "silence" }] });
    await publish(sim, 5);
    const mended = await sim.del("/sim/kv-events");
    expect(mended.json).toMatchObject({ faults: [], nextSequence: 5 });
    await publish(sim, 1);
    await raw.received(1);
    expect(raw.sequences).toEqual([5]);
  });

  test("silence for a time ends by itself", async () => {
    const time = createVirtualTime();
    const sim = await startPublishing({ clock: time.clock, scheduler: time.scheduler, speed: 1 });
    const raw = await listenToEvents(sim);
    await breakEvents(sim, { kind: "silence", delayMs: 1_000 });
    const step = async (): Promise<void> => {
      const done = publish(sim, 1);
      await waitFor(async () => (await sim.state()).active.length === 1, { what: "a request" });
      time.advance(200);
      await done;
    };
    await step();
    time.advance(900);
    await step();
    await raw.received(1);
    expect(raw.sequences).toEqual([1]);
    expect((await channelOf(sim)).faults).toEqual([]);
  });
});

describe("in what can be replayed", () => {
  test("the replay socket falls silent while events go on, and answers again when that is over", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    const before = await channelOf(sim);
    expect(await breakEvents(sim, { kind: "replay-silent" })).toMatchObject({ replaySilent: true });
    await publish(sim, 2);
    await raw.received(2);
    expect(raw.sequences).toEqual([0, 1]);
    const asking = askReplay(sim);
    await publish(sim, 1);
    await sim.del("/sim/kv-events");
    expect((await asking).sequences).toEqual([0, 1, 2]);
    expect(await channelOf(sim)).toMatchObject({ replaySilent: false, replayPort: before.replayPort, replays: 1 });
  });

  test("a replay socket that is silent for a time comes back by itself", async () => {
    const sim = await startPublishing();
    await publish(sim, 1);
    await breakEvents(sim, { kind: "replay-silent", delayMs: 100 });
    expect((await askReplay(sim)).sequences).toEqual([0]);
    expect(await channelOf(sim)).toMatchObject({ replaySilent: false });
  });

  test("what is truncated cannot be replayed, what comes after it can", async () => {
    const sim = await startPublishing();
    const raw = await listenToEvents(sim);
    await publish(sim, 5);
    await breakEvents(sim, { kind: "gap" });
    await publish(sim, 1);
    await breakEvents(sim, { kind: "replay-truncated", keep: 3 });
    expect((await askReplay(sim)).sequences).toEqual([3, 4, 6]);
    await publish(sim, 1);
    await breakEvents(sim, { kind: "replay-truncated", keep: 100 });
    expect((await askReplay(sim)).sequences).toEqual([3, 4, 6, 7]);
    await breakEvents(sim, { kind: "replay-truncated" });
    expect((await askReplay(sim)).sequences).toEqual([7]);
    await breakEvents(sim, { kind: "replay-truncated", keep: 0 });
    expect((await askReplay(sim)).sequences).toEqual([]);
    await breakEvents(sim, { kind: "gap" });
    await publish(sim, 1);
    expect((await askReplay(sim)).sequences).toEqual([9]);
    await raw.received(8);
    expect(raw.sequences).toEqual([0, 1, 2, 3, 4, 6, 7, 9]);
  });
});

describe("as a router's feed takes them", () => {
  test.each([
    [{ kind: "gap" }, "partial", [0, 1, 3, 4]],
    [{ kind: "duplicate" }, "live complete", [0, 1, 2, 3]],
    [{ kind: "disorder" }, "live complete", [0, 1, 2, 3]],
    [{ kind: "junk" }, "partial message-refused", [0, 1, 3, 4]],
    [{ kind: "silence", count: 1 }, "live complete", [0, 1, 2, 3]],
  ] as const)("%j", async (fault, state, sequences) => {
    const sim = await startPublishing();
    const events = await followEvents(sim);
    await publish(sim, 2);
    await events.caughtUp();
    await breakEvents(sim, fault);
    await publish(sim, 2);
    await events.caughtUp();
    await events.is(state);
    expect(events.messages.map(({ sequence }) => sequence)).toEqual(sequences);
    expect(events.epochs).toBe(1);
  });

  test("messages lost while the replay is silent are a hole", async () => {
    const sim = await startPublishing();
    const events = await followEvents(sim);
    await publish(sim, 1);
    await events.caughtUp();
    await breakEvents(sim, { kind: "replay-silent" });
    await breakEvents(sim, { kind: "silence", count: 1 });
    await publish(sim, 2);
    await events.is("partial replay-failed");
    await events.caughtUp();
    expect(events.messages.map(({ sequence }) => sequence)).toEqual([0, 2]);
  });

  test("who joins after a truncation knows a part", async () => {
    const sim = await startPublishing();
    await publish(sim, 4);
    await breakEvents(sim, { kind: "replay-truncated", keep: 2 });
    const events = await followEvents(sim);
    await events.is("partial history-truncated");
    expect(events.messages.map(({ sequence }) => sequence)).toEqual([2, 3]);
  });

  test("a restart during a silence of both sockets is found out afterwards", async () => {
    const sim = await startPublishing();
    const events = await followEvents(sim);
    await publish(sim, 3);
    await events.caughtUp();
    await breakEvents(sim, { kind: "replay-silent" });
    await sim.post("/sim/reset", "");
    expect(await channelOf(sim)).toMatchObject({ replaySilent: true, nextSequence: 0 });
    await sim.del("/sim/kv-events");
    await publish(sim, 2);
    await waitFor(() => events.epochs === 2, { what: "a new epoch", deadlineMs: 10_000 });
    await events.caughtUp();
    await events.is("live complete");
    expect(events.messages.map(({ sequence }) => sequence)).toEqual([0, 1]);
  });
});

test("sixteen faults of messages wait at a time, one more is refused", async () => {
  const sim = await startPublishing();
  for (let index = 0; index < 16; index++) await breakEvents(sim, { kind: "duplicate" });
  const refused = await sim.post("/sim/kv-events", { kind: "silence" });
  expect(refused.status).toBe(400);
  expect((await channelOf(sim)).faults).toHaveLength(16);
  await publish(sim, 16);
  expect((await channelOf(sim)).faults).toEqual([]);
});

test("an engine stops with faults on", async () => {
  const sim = await startPublishing();
  await breakEvents(sim, { kind: "silence", delayMs: 600_000 });
  await breakEvents(sim, { kind: "replay-silent", delayMs: 600_000 });
  await sim.stop();
});

test.each([
  [{}, "kind"],
  [{ kind: "fire" }, "kind"],
  [{ kind: "gap", count: 1_000_001 }, "count"],
  [{ kind: "junk", count: 1_001 }, "count"],
  [{ kind: "silence", delayMs: 600_001 }, "delayMs"],
  [{ kind: "replay-silent", delayMs: -1 }, "delayMs"],
  [{ kind: "replay-truncated", keep: -1 }, "keep"],
])("refuses %j and names the field", async (fault, param) => {
  const sim = await startPublishing();
  const answer = await sim.post("/sim/kv-events", fault);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param });
});
