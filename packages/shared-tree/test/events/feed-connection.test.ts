import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createKvFeed } from "../../src/events/kv-feed.ts";
import { createReplayGate } from "../../src/events/replay-run.ts";
import { createWorkSlices } from "../../src/events/work-slices.ts";
import { createBusyClock, createTurns } from "./busy-time.ts";
import { createFakeTransport, liveFrames } from "./fake-transport.ts";
import { connectedFeed, range, startFeed } from "./feed-harness.ts";
import { largePayload, storedPayload } from "./messages.ts";
import { createRecordingSink } from "./recording-sink.ts";

test("before the first connection the feed is stale, before the start and after the stop it is off", async () => {
  const feed = await startFeed();
  expect(feed.state).toBe("stale connecting");
  await feed.feed.stop();
  expect(feed.state).toBe("off stopped");
  expect(feed.sink.states).toEqual(["stale connecting", "off stopped"]);
  expect(feed.socket.isOpen).toBe(false);
  feed.time.advance(100_000);
  expect(feed.time.pendingCount).toBe(0);
});

test("a target without events: the feed is off, says so, and opens nothing", async () => {
  const { clock, scheduler } = createVirtualTime();
  const transport = createFakeTransport();
  const feed = createKvFeed({
    ...{ key: "a", endpoints: undefined, sink: createRecordingSink(), decoder: createEventDecoder(), transport },
    ...{ slices: createWorkSlices({ clock, scheduler }), replayGate: createReplayGate(), clock, scheduler },
  });
  expect(feed.reason).toBe("not-started");
  await feed.start();
  expect(`${feed.state} ${feed.reason}`).toBe("off no-endpoint");
  expect(feed.describe()).toMatchObject({ endpoint: null, lastSequence: null, lastMessageAgeMs: null, mode: null });
  expect(transport.subscribers).toEqual([]);
});

test("an endpoint that cannot be used turns the feed off; it is tried again, and complained about once", async () => {
  const feed = await startFeed({ limits: { reopenMs: 10_000 } });
  const fail = (): void => feed.transport.subscribers.at(-1)!.tell.onFailed(new Error("address in use"));
  fail();
  expect(feed.state).toBe("off endpoint-unusable");
  expect(feed.socket.isOpen).toBe(false);
  feed.time.advance(9_999);
  expect(feed.transport.subscribers).toHaveLength(1);
  feed.time.advance(1);
  expect(feed.state).toBe("stale connecting");
  fail();
  expect(feed.lines.map(({ level }) => level)).toEqual(["warn"]);
  // Each time it waits longer.
  feed.time.advance(19_999);
  expect(feed.transport.subscribers).toHaveLength(2);
  feed.time.advance(1);
  feed.transport.subscribers.at(-1)!.tell.onUp();
  feed.time.advance(10);
  expect(feed.state).toBe("live nothing-published");
});

/*
 * The 342nd feed of a process ended it: the library allowed 1,023 sockets and threw, and nobody held the promise of the
 * feed's start.
 */
test("a socket that cannot be opened turns the feed off with the reason; it is tried again, at most every two minutes", async () => {
  const { clock, scheduler, advance } = createVirtualTime();
  const transport = createFakeTransport();
  const open = transport.openSubscriber;
  let attempts = 0;
  transport.openSubscriber = () => {
    attempts += 1;
    throw new Error("Too many open file descriptors");
  };
  const sink = createRecordingSink();
  const meter = createSeriesMeter();
  const feed = createKvFeed({
    ...{ key: "a", endpoints: { endpoint: "tcp://a:1", mode: "connect", topic: "", replayEndpoint: undefined } },
    ...{ sink, decoder: createEventDecoder(), transport, replayGate: createReplayGate(), clock, scheduler, meter },
    ...{ slices: createWorkSlices({ clock, scheduler }), random: { float: () => 1, integer: () => 0 } },
  });
  await feed.start();
  expect(`${feed.state} ${feed.reason}: ${feed.failure}`).toBe("off endpoint-unusable: Too many open file descriptors");
  const waits = [10_000, 20_000, 40_000, 80_000, 120_000, 120_000];
  for (const [at, waitMs] of waits.entries()) {
    expect(attempts).toBe(at + 1);
    advance(waitMs);
  }
  expect(meter.value("espalier_kv_feed_open_failures_total", "a")).toBe(7);
  transport.openSubscriber = open;
  advance(120_000);
  expect(`${feed.state} ${feed.reason}: ${feed.failure}`).toBe("stale connecting: undefined");
  transport.subscribers[0]!.tell.onUp();
  expect(feed.state).toBe("partial");
});

/*
 * Feeds take turns: what one feed's sink threw left through the socket of whichever feed had asked for work, whose
 * endpoint was then taken for unusable.
 */
test("what a sink throws is the loss of a message, and no other feed's fault", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(3);
  feed.sink.newEpoch = () => {
    throw new Error("defect");
  };
  feed.engine.restart();
  expect(() => feed.engine.publish(1)).not.toThrow();
  feed.time.advance(100);
  expect(feed.lines.map(({ level }) => level)).toContain("error");
  expect(feed.state).not.toContain("off");
  expect(feed.meter.value("refused_messages_total", "engine-a/0", "failed")).toBe(1);
});

test("a feed that is stopped while its endpoint cannot be used does not come back", async () => {
  const feed = await startFeed();
  feed.socket.tell.onFailed(new Error("address in use"));
  await feed.feed.stop();
  feed.time.advance(100_000);
  expect(feed.transport.subscribers).toHaveLength(1);
  expect(feed.state).toBe("off stopped");
});

test("connected, no replay, nothing arrives: the state says so", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.time.advance(60_000);
  expect(feed.state).toBe("partial nothing-received");
});

test("a message before the news of the connection counts as that news", async () => {
  const feed = await startFeed();
  feed.engine.publish(1);
  expect(feed.state).toBe("replaying first-connection");
  feed.connect();
  expect(feed.sink.sequences).toEqual([0]);
  expect(feed.asked).toEqual([0]);
});

test("socket lost and back: stale at once, then what was missed is fetched", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(4);
  feed.disconnect();
  expect(feed.state).toBe("stale socket-lost");
  feed.engine.publishUnheard(3);
  feed.time.advance(1_000);
  expect(feed.state).toBe("stale socket-lost");
  feed.socket.tell.onUp();
  expect(feed.state).toBe("replaying reconnected");
  feed.time.advance(5);
  expect(feed.sink.sequences).toEqual(range(0, 6));
  expect(feed.asked).toEqual([0, 3]);
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("live complete");
});

test("socket lost in the middle of a replay: it is begun again on the next connection", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(3);
  feed.socket.tell.onUp();
  feed.disconnect();
  expect(feed.transport.replays[0]!.isOpen).toBe(false);
  feed.time.advance(10);
  expect(feed.sink.sequences).toEqual([]);
  feed.connect();
  expect(feed.sink.sequences).toEqual([0, 1, 2]);
  expect(feed.state).toBe("live complete");
});

test("silent engine that was restarted: it does not know its last message, all of the old epoch is void", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(4);
  feed.disconnect();
  feed.engine.restart();
  feed.connect();
  expect(feed.sink.epochs).toEqual(["restarted"]);
  expect(feed.asked).toEqual([0, 3, 0]);
  expect(feed.state).toBe("live nothing-published");
});

test("stale restart: the new process is beyond the old number, and the payloads give it away", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(4);
  feed.disconnect();
  feed.engine.restart();
  feed.engine.publishUnheard(9);
  feed.connect();
  expect(feed.sink.epochs).toEqual(["restarted"]);
  expect(feed.asked).toEqual([0, 3, 0]);
  expect(feed.sink.hashes).toEqual(range(2_000_000, 2_000_008));
  expect(feed.state).toBe("live complete");
});

test("the last message is beyond the history after a lost connection: nothing shows that it is the same process", async () => {
  const feed = await startFeed();
  feed.engine.bufferSteps = 3;
  feed.connect();
  feed.engine.publish(4);
  feed.disconnect();
  feed.engine.publishUnheard(9);
  feed.connect();
  expect(feed.sink.epochs).toEqual(["unverified"]);
  expect(feed.sink.sequences).toEqual([10, 11, 12]);
  expect(feed.state).toBe("partial history-truncated");
});

test("socket lost and back without replay: unverified until the next number shows that nothing was missed", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(4);
  feed.disconnect();
  feed.connect();
  expect(feed.state).toBe("stale unverified");
  feed.engine.publish(1);
  expect(feed.sink.sequences).toEqual(range(0, 4));
  expect(feed.state).toBe("live complete");
});

test("socket lost and back without replay: any other number is taken for another process", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(4);
  feed.disconnect();
  feed.engine.publishUnheard(1);
  feed.connect();
  feed.engine.publish(1);
  expect(feed.sink.epochs).toEqual(["unverified"]);
  expect(feed.sink.sequences).toEqual([5]);
  expect(feed.state).toBe("partial joined-late");
});

test("socket lost and back without replay, number behind what is remembered: another process", async () => {
  const feed = await connectedFeed({ replay: false, limits: { rememberedMessages: 2 } });
  feed.engine.publish(4);
  feed.disconnect();
  feed.connect();
  feed.engine.send(0);
  expect(feed.sink.epochs).toEqual(["unverified"]);
  expect(feed.state).toBe("live complete");
});

test("socket lost and back, replay silent: unverified until the engine answers again", async () => {
  const feed = await connectedFeed({ limits: { replayCooldownMs: 10_000 } });
  feed.engine.publish(4);
  feed.disconnect();
  feed.engine.answer = () => {};
  feed.connect();
  feed.time.advance(4_000);
  expect(feed.state).toBe("stale unverified");
  feed.engine.answer = feed.engine.answerInFull;
  feed.time.advance(20_000);
  expect(feed.state).toBe("live complete");
  expect(feed.sink.epochs).toEqual([]);
});

test("what waited for a missing message when the socket was lost comes again by replay", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(2);
  feed.engine.publishUnheard(1);
  feed.engine.publish(1);
  feed.disconnect();
  expect(feed.feed.describe().pendingMessages).toBe(0);
  feed.connect();
  expect(feed.sink.sequences).toEqual([0, 1, 2, 3]);
});

test("the last messages before a silence got lost: the engine is asked once", async () => {
  const feed = await connectedFeed({ limits: { quietCheckMs: 5_000 } });
  feed.engine.publish(2);
  feed.engine.publishUnheard(2);
  feed.time.advance(10_010);
  expect(feed.sink.sequences).toEqual([0, 1, 2, 3]);
  expect(feed.sink.states.filter((state) => state.startsWith("replaying"))).toEqual(["replaying first-connection"]);
  feed.time.advance(60_000);
  expect(feed.asked).toEqual([0, 1]);
  feed.engine.publish(1);
  feed.time.advance(10_010);
  expect(feed.asked).toEqual([0, 1, 4]);
  expect(feed.state).toBe("live complete");
});

test("a live message ends the question after the last ones", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(2);
  feed.engine.answer = () => {};
  feed.time.advance(10_000);
  expect(feed.asked).toEqual([0, 1]);
  feed.engine.publish(1);
  expect(feed.sink.sequences).toEqual([0, 1, 2]);
  expect(feed.transport.replays[1]!.isOpen).toBe(false);
  feed.time.advance(1_000);
  expect(feed.state).toBe("live complete");
});

test("overflow of what waits for a replay: dropped, and fetched by the next replay", async () => {
  const feed = await startFeed({ limits: { pendingMessages: 10 } });
  feed.socket.tell.onUp();
  const early = feed.engine.answer;
  feed.engine.answer = (replay) => void feed.time.scheduler.after(100, () => early(replay));
  feed.time.advance(1);
  feed.engine.publish(10);
  expect(feed.feed.describe()).toMatchObject({ resyncs: 0, pendingMessages: 10 });
  feed.engine.publish(1);
  expect(feed.feed.describe()).toMatchObject({ resyncs: 1, pendingMessages: 1 });
  feed.time.advance(1_000);
  expect(feed.sink.sequences).toEqual(range(0, 10));
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("live complete");
});

test("overflow in bytes counts as well", async () => {
  const feed = await startFeed({ limits: { pendingBytes: 50_000 } });
  feed.socket.tell.onUp();
  for (let sequence = 0; sequence < 4; sequence++) {
    feed.socket.tell.onMessage(liveFrames(sequence, largePayload(sequence, 15_000)));
  }
  expect(feed.feed.describe()).toMatchObject({ resyncs: 1, pendingMessages: 1 });
});

test("a flood is worked off in slices, and the socket is paused while much waits", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time), sliceMs: 8 });
  const feed = await connectedFeed({ replay: false, time, slices, limits: { pendingMessages: 40 } });
  feed.engine.publish(30);
  const first = feed.sink.sequences.length;
  expect(first).toBeGreaterThan(0);
  expect(first).toBeLessThan(10);
  expect(feed.socket.isPaused).toBe(true);
  const perTurn: number[] = [];
  while (feed.sink.sequences.length < 30) {
    const before = feed.sink.sequences.length;
    time.advance(1);
    perTurn.push(feed.sink.sequences.length - before);
  }
  expect(Math.max(...perTurn)).toBeLessThan(10);
  expect(feed.sink.sequences).toEqual(range(0, 29));
  expect(feed.socket.isPaused).toBe(false);
  expect(feed.state).toBe("live complete");
});

test("overflow of a flood without replay: the hole is declared", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time), sliceMs: 2 });
  const feed = await connectedFeed({ replay: false, time, slices, limits: { pendingMessages: 5 } });
  feed.engine.publish(20);
  time.advance(100);
  expect(feed.feed.describe().resyncs).toBeGreaterThan(0);
  expect(feed.sink.sequences.at(-1)).toBe(19);
  expect(feed.state).toBe("partial gap");
});

test("overflow of a flood with replay: nothing is lost", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time), sliceMs: 2 });
  const feed = await connectedFeed({ time, slices, limits: { pendingMessages: 5 } });
  feed.engine.publish(20);
  expect(feed.state).toBe("replaying overflow");
  time.advance(20_000);
  expect(feed.sink.sequences).toEqual(range(0, 19));
  expect(feed.state).toBe("live complete");
});

test("a long history is taken in slices, and the replay socket is paused while much waits", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time) });
  const feed = await startFeed({ time, slices, limits: { pendingMessages: 100 } });
  feed.engine.publishUnheard(80);
  feed.socket.tell.onUp();
  time.advance(1);
  expect(feed.transport.replays[0]!.isPaused).toBe(true);
  expect(feed.sink.sequences.length).toBeLessThan(20);
  time.advance(100);
  expect(feed.transport.replays[0]!.isPaused).toBe(false);
  expect(feed.sink.sequences).toEqual(range(0, 79));
  expect(feed.asked).toEqual([0]);
});

test("answers beyond the bound are dropped and asked for again", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time) });
  const feed = await startFeed({ time, slices, limits: { pendingMessages: 20 } });
  feed.engine.publishUnheard(60);
  feed.connect();
  time.advance(20_000);
  expect(feed.sink.sequences).toEqual(range(0, 59));
  expect(feed.asked.length).toBeGreaterThan(1);
  expect(feed.state).toBe("live complete");
});

test("a flood on several feeds at once: one slice for all of them, and each gets its turn", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time), sliceMs: 8 });
  const feeds = await Promise.all(range(1, 4).map(() => startFeed({ replay: false, time, slices })));
  for (const { socket } of feeds) socket.tell.onUp();
  for (const { engine } of feeds) engine.publish(20);
  const counts = (): number[] => feeds.map(({ sink }) => sink.sequences.length);
  const total = (): number => counts().reduce((sum, count) => sum + count, 0);
  let before = total();
  while (total() < 80) {
    time.advance(1);
    expect(total() - before).toBeLessThanOrEqual(8);
    expect(total()).toBeGreaterThan(before);
    before = total();
    // The first feed had a start over the others, which is all that it keeps.
    const [least, most] = [Math.min(...counts().slice(1)), Math.max(...counts().slice(1))];
    expect(most - least).toBeLessThanOrEqual(1);
  }
  for (const { sink } of feeds) expect(sink.sequences).toEqual(range(0, 19));
});

test("news of a second connection changes nothing, and after the stop there is no news", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(2);
  feed.socket.tell.onUp();
  expect(feed.asked).toEqual([0]);
  const { observer } = feed.socket.options;
  await feed.feed.stop();
  observer.onMessage(liveFrames(2, storedPayload(1)));
  observer.onUp();
  observer.onDown();
  observer.onFailed(new Error("late"));
  expect(feed.sink.sequences).toEqual([0, 1]);
  expect(feed.state).toBe("off stopped");
  expect(feed.meter.names).toEqual([]);
});

test("a connection that is lost twice is lost once", async () => {
  const feed = await startFeed();
  feed.disconnect();
  expect(feed.state).toBe("stale connecting");
  feed.connect();
  feed.disconnect();
  feed.disconnect();
  expect(feed.sink.states.filter((state) => state === "stale socket-lost")).toHaveLength(1);
});
