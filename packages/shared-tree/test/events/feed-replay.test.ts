import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createReplayGate } from "../../src/events/replay-run.ts";
import { empty, type FakeReplay } from "./fake-transport.ts";
import { connectedFeed, type FakeEngine, range, startFeed } from "./feed-harness.ts";
import { junkPayload, storedPayload } from "./messages.ts";

test("first connection: the history is fetched from 0, live messages wait meanwhile", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(4);
  feed.socket.tell.onUp();
  expect(feed.state).toBe("replaying first-connection");
  feed.engine.publish(2);
  expect(feed.sink.sequences).toEqual([]);
  feed.time.advance(1);
  expect(feed.sink.sequences).toEqual(range(0, 5));
  expect(feed.state).toBe("live complete");
  expect(feed.asked).toEqual([0]);
  expect(feed.transport.replays.map(({ isOpen }) => isOpen)).toEqual([false]);
});

test.each(["topic", "plain"] as const)("replay in the form %s", async (form) => {
  const feed = await startFeed();
  feed.engine.form = form;
  feed.engine.publishUnheard(3);
  feed.connect();
  expect(feed.sink.sequences).toEqual([0, 1, 2]);
  expect(feed.state).toBe("live complete");
});

test("an engine that has published nothing: only the end marker, and the feed is live", async () => {
  const feed = await connectedFeed();
  expect(feed.state).toBe("live nothing-published");
  feed.engine.publish(1);
  expect(feed.state).toBe("live complete");
});

test("truncated history: the suffix is taken, the feed is partial", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(30);
  feed.engine.bufferSteps = 12;
  feed.connect();
  expect(feed.sink.sequences).toEqual(range(18, 29));
  expect(feed.state).toBe("partial history-truncated");
  feed.engine.publish(1);
  expect(feed.sink.sequences).toEqual(range(18, 30));
  expect(feed.feed.describe()).toMatchObject({ latestGaps: [{ from: 0, to: 17 }], lastReplay: "complete" });
});

test("a gap longer than the history: what is left is taken, the rest is a hole of the same epoch", async () => {
  const feed = await startFeed();
  feed.engine.bufferSteps = 4;
  feed.connect();
  feed.engine.publish(3);
  feed.engine.publishUnheard(10);
  feed.engine.publish(1);
  feed.time.advance(40);
  expect(feed.sink.sequences).toEqual([0, 1, 2, ...range(10, 13)]);
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("partial history-truncated");
});

test("an engine that keeps no history: joined late after two vain requests", async () => {
  const feed = await startFeed();
  feed.engine.bufferSteps = 0;
  feed.engine.publishUnheard(5);
  feed.connect();
  expect(feed.state).toBe("live nothing-published");
  feed.engine.publish(2);
  feed.time.advance(100);
  expect(feed.sink.sequences).toEqual([5, 6]);
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("partial joined-late");
});

test("replay end marker lost: asked again from the last message, the engine repeats it, and that is the end", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(10);
  feed.engine.answerEnd = () => {};
  feed.connect();
  expect(feed.sink.sequences).toEqual(range(0, 9));
  expect(feed.state).toBe("replaying first-connection");
  feed.time.advance(4_010);
  expect(feed.asked).toEqual([0, 9]);
  expect(feed.state).toBe("live complete");
});

test("replay stalls half-way: it is resumed from the last good message", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(10);
  feed.engine.answer = (replay) => {
    if (replay.start > 0) feed.engine.answerInFull(replay);
    else for (const sequence of range(0, 5)) feed.engine.answerOne(replay, sequence);
  };
  feed.connect();
  expect(feed.sink.sequences).toEqual(range(0, 5));
  feed.time.advance(2_010);
  expect(feed.asked).toEqual([0, 5]);
  expect(feed.sink.sequences).toEqual(range(0, 9));
  expect(feed.state).toBe("live complete");
});

test("a hole inside an answer, as a ROUTER at its high-water mark leaves it: resumed at once", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(10);
  feed.engine.answer = (replay) => {
    if (replay.start > 0) feed.engine.answerInFull(replay);
    else for (const sequence of [0, 1, 2, 6, 7]) feed.engine.answerOne(replay, sequence);
  };
  feed.connect();
  expect(feed.asked).toEqual([0, 2]);
  expect(feed.sink.sequences).toEqual(range(0, 9));
  expect(feed.state).toBe("live complete");
});

test("answers that break off again and again: given up after the allowed requests", async () => {
  const feed = await startFeed({ limits: { replayRequests: 3 } });
  feed.engine.publishUnheard(20);
  const answerTwo = (replay: FakeReplay): void => {
    for (const sequence of [replay.start, replay.start + 1, replay.start + 3]) feed.engine.answerOne(replay, sequence);
  };
  feed.engine.answer = answerTwo;
  feed.connect();
  expect(feed.asked).toEqual([0, 1, 2]);
  expect(feed.sink.sequences).toEqual(range(0, 3));
  expect(feed.feed.describe().lastReplay).toBe("failed");
  // What was had is complete so far; the next live message shows the hole.
  feed.engine.publish(1);
  feed.time.advance(20);
  expect(feed.sink.sequences).toEqual([...range(0, 3), 20]);
  expect(feed.state).toBe("partial replay-failed");
});

test("a replay endpoint that never answers: two requests, then the feed goes on with what is live", async () => {
  const feed = await startFeed();
  feed.engine.answer = () => {};
  feed.engine.publishUnheard(3);
  feed.connect();
  feed.engine.publish(2);
  feed.time.advance(3_900);
  expect(feed.state).toBe("replaying first-connection");
  feed.time.advance(200);
  expect(feed.asked).toEqual([0, 0]);
  expect(feed.sink.sequences).toEqual([3, 4]);
  expect(feed.state).toBe("partial joined-late");
  expect(feed.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
});

test("a replay endpoint that never answers, and nothing live either", async () => {
  const feed = await startFeed();
  feed.engine.answer = () => {};
  feed.connect();
  feed.time.advance(4_000);
  expect(feed.state).toBe("partial replay-failed");
});

test("a failed replay is not tried again until its cooldown is over, then silence is used for it", async () => {
  const feed = await startFeed({ limits: { replayCooldownMs: 30_000 } });
  feed.engine.answer = () => {};
  feed.connect();
  feed.time.advance(30_000);
  expect(feed.asked).toHaveLength(2);
  feed.engine.publishUnheard(2);
  feed.engine.answer = feed.engine.answerInFull;
  feed.time.advance(10_000);
  expect(feed.sink.sequences).toEqual([0, 1]);
  expect(feed.state).toBe("live complete");
});

test("a replay that drips on and on ends at the total timeout", async () => {
  const feed = await startFeed({ limits: { replayTotalMs: 10_000 } });
  feed.engine.publishUnheard(1_000);
  feed.engine.answer = (replay) => {
    let sequence = replay.start;
    feed.time.scheduler.every(1_000, () => feed.engine.answerOne(replay, sequence++));
  };
  feed.connect();
  feed.time.advance(9_000);
  expect(feed.state).toBe("replaying first-connection");
  feed.time.advance(1_000);
  expect(feed.state).toBe("live complete");
  expect(feed.feed.describe()).toMatchObject({ lastReplay: "failed", lastSequence: 8 });
});

test("answers that are no answers, or for numbers not asked for, are passed over", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(5);
  feed.engine.publishUnheard(1);
  feed.engine.answer = (replay) => {
    replay.answer([empty]);
    replay.answer([empty, new Uint8Array(8), empty]);
    replay.answer([Buffer.from("x"), new Uint8Array(8), storedPayload(1)]);
    feed.engine.answerOne(replay, 2);
    feed.engine.answerInFull(replay);
    feed.engine.answerOne(replay, 4);
  };
  feed.engine.publish(1);
  feed.time.advance(50);
  expect(feed.sink.sequences).toEqual(range(0, 6));
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("live complete");
});

test("the engine is restarted in the middle of a replay: what came before is void", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(6);
  feed.engine.answer = (replay) => {
    if (replay.start > 0 || feed.transport.replays.length > 1) return feed.engine.answerInFull(replay);
    for (const sequence of range(0, 5)) feed.engine.answerOne(replay, sequence);
    feed.engine.restart();
    feed.engine.publishUnheard(8);
  };
  feed.connect();
  feed.time.advance(2_100);
  expect(feed.asked).toEqual([0, 5, 0]);
  expect(feed.sink.epochs).toEqual(["restarted"]);
  expect(feed.sink.hashes).toEqual(range(2_000_000, 2_000_007));
  expect(feed.state).toBe("live complete");
});

test("replays of all feeds pass one gate", async () => {
  const time = createVirtualTime();
  const gate = createReplayGate(2);
  const feeds = await Promise.all(range(1, 5).map(() => startFeed({ gate, time })));
  const answering = (engine: FakeEngine, afterMs: number): void => {
    engine.answer = (replay) => void time.scheduler.after(afterMs, () => engine.answerInFull(replay));
  };
  for (const { engine } of feeds) answering(engine, 99);
  for (const { socket } of feeds) socket.tell.onUp();
  const counts: number[] = [];
  for (const _ of range(0, 3)) {
    counts.push(feeds.filter(({ asked }) => asked.length > 0).length);
    time.advance(100);
  }
  expect(counts).toEqual([2, 4, 5, 5]);
  expect(feeds.map(({ state }) => state)).toEqual(Array(5).fill("live nothing-published"));
});

/*
 * Eight replays that could not open a socket, as descriptors had run out for a moment, kept their places at the gate for
 * ever: no feed of the process got a replay again, and none that waited for one read live messages.
 */
test("replays that cannot open a socket fail; their places at the gate are free, and each feed asks again", async () => {
  const time = createVirtualTime();
  const gate = createReplayGate(2);
  const feeds = await Promise.all(range(1, 4).map(() => startFeed({ gate, time })));
  const opens = feeds.map(({ transport }) => transport.openReplay);
  for (const { transport } of feeds) {
    transport.openReplay = () => {
      throw Object.assign(new Error("Too many open file descriptors"), { code: "EMFILE" });
    };
  }
  for (const feed of feeds.slice(0, 3)) feed.connect();
  expect(feeds.map(({ state }) => state)).toEqual([...Array(3).fill("partial replay-failed"), "stale connecting"]);
  for (const [at, { transport }] of feeds.entries()) transport.openReplay = opens[at]!;
  feeds[3]!.connect();
  expect(feeds[3]!.state).toBe("live nothing-published");
  time.advance(60_000);
  expect(feeds.map(({ state }) => state)).toEqual(Array(4).fill("live nothing-published"));
});

test("a feed that is stopped while it waits at the gate leaves its place to others", async () => {
  const time = createVirtualTime();
  const gate = createReplayGate(1);
  const [first, second, third] = await Promise.all(range(1, 3).map(() => startFeed({ gate, time })));
  for (const feed of [first!, second!, third!]) feed.socket.tell.onUp();
  await second!.feed.stop();
  await first!.feed.stop();
  time.advance(10);
  expect(second!.asked).toEqual([]);
  expect(third!.state).toBe("live nothing-published");
});

test("two publishers under one name: replays stay within their allowance", async () => {
  const feed = await connectedFeed();
  for (let round = 0; round < 100; round++) {
    feed.engine.restart();
    feed.engine.publish(1);
    feed.time.advance(10);
  }
  expect(feed.asked.length).toBe(8);
  expect(feed.sink.epochs.length).toBeGreaterThan(90);
  feed.time.advance(10_000);
  feed.engine.restart();
  feed.engine.publish(1);
  expect(feed.asked.length).toBeGreaterThan(8);
});

test("no room at the gate: the replay has failed, the feed goes on", async () => {
  const feed = await connectedFeed({ gate: { acquire: () => undefined } });
  expect(feed.state).toBe("partial replay-failed");
  feed.engine.publish(2);
  expect(feed.sink.sequences).toEqual([0, 1]);
  expect(feed.state).toBe("live complete");
});

test("a message of the history that cannot be used is a hole of one", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(2);
  feed.engine.history.push(junkPayload);
  feed.engine.publishUnheard(2);
  feed.connect();
  expect(feed.sink.sequences).toEqual([0, 1, 3, 4]);
  expect(feed.asked).toEqual([0]);
  expect(feed.state).toBe("partial message-refused");
  // It is remembered all the same: asked again from there, the engine proves to be the same.
  feed.engine.history.push(junkPayload);
  feed.engine.send(5);
  feed.disconnect();
  feed.connect();
  expect(feed.asked).toEqual([0, 5]);
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("partial message-refused");
});

test("a new epoch forgets the holes of the old one", async () => {
  const feed = await startFeed();
  feed.engine.bufferSteps = 2;
  feed.engine.publishUnheard(5);
  feed.connect();
  expect(feed.state).toBe("partial history-truncated");
  feed.engine.restart();
  feed.engine.publish(2);
  feed.time.advance(10);
  expect(feed.state).toBe("live complete");
  expect(feed.feed.describe()).toMatchObject({ gaps: 1, latestGaps: [] });
});
