import { writeSequence } from "@espalier/engine-model/kv-events";
import { expect, test } from "vitest";
import { liveFrames } from "./fake-transport.ts";
import { connectedFeed, range, startFeed } from "./feed-harness.ts";
import { junkPayload, largePayload, storedPayload } from "./messages.ts";

test("a stream that is complete since sequence 0 is live", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(5);
  expect(feed.sink.sequences).toEqual(range(0, 4));
  expect(feed.sink.hashes).toEqual(range(1_000_000, 1_000_004));
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("live complete");
});

test("restart: a lower number is another process, whose history is fetched from 0", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(5);
  feed.engine.restart();
  feed.engine.publish(2);
  expect(feed.state).toBe("replaying new-epoch");
  expect(feed.sink.log.slice(-2)).toEqual(["epoch restarted", "replaying new-epoch"]);
  feed.time.advance(10);
  expect(feed.sink.sequences).toEqual([0, 1]);
  expect(feed.sink.hashes).toEqual([2_000_000, 2_000_001]);
  expect(feed.state).toBe("live complete");
  expect(feed.asked).toEqual([0, 0]);
});

test("restart without replay: a new epoch that is seen from its first message is live", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(5);
  feed.engine.restart();
  feed.engine.publish(3);
  expect(feed.sink.epochs).toEqual(["restarted"]);
  expect(feed.sink.sequences).toEqual([0, 1, 2]);
  expect(feed.state).toBe("live complete");
});

test("restart without replay: a new epoch that is seen from its third message on is partial", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(5);
  feed.engine.restart();
  feed.engine.publishUnheard(2);
  feed.engine.publish(2);
  expect(feed.sink.epochs).toEqual(["restarted"]);
  expect(feed.sink.sequences).toEqual([2, 3]);
  expect(feed.state).toBe("partial joined-late");
});

test("restart beyond the remembered numbers is told by the engine's clock", async () => {
  const feed = await connectedFeed({ replay: false, limits: { rememberedMessages: 4 } });
  feed.engine.publish(20);
  feed.time.advance(1_000);
  feed.engine.restart();
  feed.engine.publish(1);
  expect(feed.sink.epochs).toEqual(["restarted"]);
  expect(feed.state).toBe("live complete");
});

test("an old message from a queue on the way is a duplicate, even beyond the remembered numbers", async () => {
  const feed = await connectedFeed({ replay: false, limits: { rememberedMessages: 4 } });
  feed.engine.publish(20);
  feed.engine.send(3);
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.sink.sequences).toEqual(range(0, 19));
  expect(feed.feed.describe().duplicates).toBe(1);
  expect(feed.state).toBe("live complete");
});

test("gap with replay: what was lost is fetched, from the last good message on", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(3);
  feed.engine.publishUnheard(2);
  feed.engine.publish(2);
  expect(feed.sink.sequences).toEqual([0, 1, 2]);
  feed.time.advance(19);
  expect(feed.state).toBe("live complete");
  feed.time.advance(1);
  expect(feed.state).toBe("replaying filling-gap");
  feed.time.advance(10);
  expect(feed.sink.sequences).toEqual(range(0, 6));
  expect(feed.state).toBe("live complete");
  expect(feed.asked).toEqual([0, 2]);
  expect(feed.feed.describe()).toMatchObject({ gaps: 0, missedMessages: 0 });
});

test("gap without replay: it is declared, and the feed goes on as partial", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(3);
  feed.engine.publishUnheard(2);
  feed.engine.publish(2);
  feed.time.advance(20);
  feed.engine.publish(1);
  expect(feed.sink.sequences).toEqual([0, 1, 2, 5, 6, 7]);
  expect(feed.state).toBe("partial gap");
  expect(feed.feed.describe()).toMatchObject({
    gaps: 1,
    missedMessages: 2,
    lastSequence: 7,
    latestGaps: [{ from: 3, to: 4, reason: "gap" }],
  });
});

test("two gaps without replay, the second inside what waited: both are declared in turn", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(2);
  feed.engine.publishUnheard(1);
  feed.engine.publish(1);
  feed.engine.publishUnheard(1);
  feed.engine.publish(1);
  feed.time.advance(20);
  expect(feed.sink.sequences).toEqual([0, 1, 3]);
  feed.time.advance(20);
  expect(feed.sink.sequences).toEqual([0, 1, 3, 5]);
  expect(feed.feed.describe().gaps).toBe(2);
});

test("gap that the engine's history has, too, is declared after two replays", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(3);
  feed.engine.publishUnheard(1);
  // The history ends before the hole: what the engine sent since is not in it.
  feed.engine.answer = (replay) => {
    feed.engine.answerOne(replay, 2);
    feed.engine.answerEnd(replay);
  };
  feed.engine.publish(2);
  feed.time.advance(100);
  expect(feed.asked).toEqual([0, 2, 2]);
  expect(feed.sink.sequences).toEqual([0, 1, 2, 4, 5]);
  expect(feed.state).toBe("partial gap");
});

test("out of order: what came early waits for what was late, and nothing is lost", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(2);
  feed.engine.publishUnheard(4);
  for (const sequence of [4, 3, 5, 2]) feed.engine.send(sequence);
  expect(feed.sink.sequences).toEqual(range(0, 5));
  expect(feed.state).toBe("live complete");
  expect(feed.asked).toEqual([0]);
  feed.time.advance(100);
  expect(feed.asked).toEqual([0]);
});

test("out of order: a message that comes early twice is a duplicate", async () => {
  const feed = await connectedFeed();
  feed.engine.publishUnheard(2);
  for (const sequence of [1, 1, 0]) feed.engine.send(sequence);
  expect(feed.sink.sequences).toEqual([0, 1]);
  expect(feed.feed.describe().duplicates).toBe(1);
});

test.each([
  ["messages", { reorderMessages: 3 }, 3, 1],
  ["bytes", { reorderBytes: 30_000 }, 2, 10_000],
])("out of order: one more than the bound of %s ends the wait", async (_what, limits, waiting, sizeBytes) => {
  const { connect, engine, socket, sink, feed } = await startFeed({ replay: false, limits });
  connect();
  engine.publish(1);
  const send = (sequence: number): void =>
    socket.tell.onMessage(liveFrames(sequence, largePayload(sequence, sizeBytes)));
  for (let sequence = 2; sequence < 2 + waiting; sequence++) send(sequence);
  expect(sink.sequences).toEqual([0]);
  send(2 + waiting);
  expect(sink.sequences).toEqual([0, ...range(2, 2 + waiting)]);
  expect(feed.reason).toBe("gap");
});

test("duplicate: the same number and payload again is ignored and counted", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(3);
  for (const sequence of [2, 0, 2]) feed.engine.send(sequence);
  expect(feed.sink.sequences).toEqual([0, 1, 2]);
  expect(feed.feed.describe().duplicates).toBe(3);
  expect(feed.state).toBe("live complete");
});

test("duplicate number with another payload: another process", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(1);
  feed.engine.restart();
  feed.engine.publish(1);
  expect(feed.sink.epochs).toEqual(["payload-changed"]);
  feed.time.advance(10);
  expect(feed.sink.hashes).toEqual([2_000_000]);
  expect(feed.state).toBe("live complete");
});

test("a message that belongs in a declared hole comes too late", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(2);
  feed.engine.publishUnheard(1);
  feed.engine.publish(1);
  feed.time.advance(20);
  feed.engine.send(2);
  expect(feed.sink.sequences).toEqual([0, 1, 3]);
  expect(feed.sink.epochs).toEqual([]);
  expect(feed.state).toBe("partial gap");
});

test("decoder refusing a message: a hole of one, and the feed goes on", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(2);
  feed.engine.history.push(junkPayload);
  feed.engine.send(2);
  feed.engine.publish(1);
  expect(feed.sink.sequences).toEqual([0, 1, 3]);
  expect(feed.state).toBe("partial message-refused");
  expect(feed.feed.describe()).toMatchObject({ gaps: 1, refusedMessages: 1, lastSequence: 3 });
  expect(feed.meter.value("refused_messages_total", "engine-a/0", "invalid")).toBe(1);
  // The engine has the same bytes in its history: asking would not help.
  expect(feed.asked).toEqual([0]);
});

test("unknown tag: the event is counted, the rest of the message is used", async () => {
  const feed = await connectedFeed();
  // [0.0, [["Mystery", 1], ["AllBlocksCleared"]], nil]
  const tags = ["Mystery", "AllBlocksCleared"].map((tag) => [0xa0 | tag.length, ...Buffer.from(tag)]);
  const payload = [0x93, 0x00, 0x92, 0x92, ...tags[0]!, 0x01, 0x91, ...tags[1]!, 0xc0];
  feed.socket.tell.onMessage(liveFrames(0, Uint8Array.from(payload)));
  expect(feed.sink.sequences).toEqual([0]);
  expect(feed.feed.describe()).toMatchObject({ events: 1, undecodedEvents: 1, refusedMessages: 0 });
  expect(feed.state).toBe("live complete");
});

test("a sink that throws loses that message only", async () => {
  const feed = await startFeed();
  feed.sink.throwAt = 1;
  feed.connect();
  feed.engine.publish(3);
  expect(feed.sink.sequences).toEqual([0, 2]);
  expect(feed.state).toBe("partial message-refused");
  expect(feed.lines.filter(({ level }) => level === "error")).toHaveLength(1);
  expect(feed.meter.value("refused_messages_total", "engine-a/0", "failed")).toBe(1);
});

test.each([
  ["two frames", [Buffer.from("topic"), writeSequence(0)]],
  ["four frames", [...liveFrames(0, storedPayload(1)), Buffer.from("more")]],
  ["a number of 7 bytes", [Buffer.from("topic"), new Uint8Array(7), storedPayload(1)]],
  ["the number 2^53", [Buffer.from("topic"), Uint8Array.of(0, 0x20, 0, 0, 0, 0, 0, 0), storedPayload(1)]],
  ["no frame", []],
])("a message with %s is counted and changes nothing", async (_what, frames) => {
  const feed = await connectedFeed();
  feed.engine.publish(1);
  feed.socket.tell.onMessage(frames);
  expect(feed.sink.sequences).toEqual([0]);
  expect(feed.state).toBe("live complete");
  expect(feed.meter.value("refused_messages_total", "engine-a/0", "frames")).toBe(1);
});
