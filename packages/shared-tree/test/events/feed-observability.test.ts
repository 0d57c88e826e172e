import { expect, test } from "vitest";
import { defaultFeedLimits } from "../../src/events/feed-limits.ts";
import { connectedFeed, startFeed } from "./feed-harness.ts";

test("a feed describes itself in plain JSON", async () => {
  const feed = await connectedFeed();
  feed.engine.publish(3);
  feed.time.advance(250);
  const described = feed.feed.describe();
  expect(JSON.parse(JSON.stringify(described))).toEqual(described);
  expect(described).toMatchObject({
    state: "live",
    reason: "complete",
    since: "2023-11-14T22:13:20.001Z",
    endpoint: "tcp://engine:5557",
    replayEndpoint: "tcp://engine:5657",
    mode: "connect",
    topic: "",
    lastSequence: 2,
    lastMessageAgeMs: 250,
    lastReplay: "empty",
    messages: 3,
    events: 3,
    blocksStored: 3,
    blocksRemoved: 0,
    gaps: 0,
    pendingMessages: 0,
    pendingBytes: 0,
  });
});

test("only the latest holes are listed", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(1);
  for (let hole = 0; hole < 9; hole++) {
    feed.engine.publishUnheard(1);
    feed.engine.publish(1);
    feed.time.advance(20);
  }
  const { gaps, latestGaps } = feed.feed.describe();
  expect(gaps).toBe(9);
  expect(latestGaps.map(({ from }) => from)).toEqual([3, 5, 7, 9, 11, 13, 15, 17]);
});

test("metrics follow the feed, under its key only, and leave with it", async () => {
  const feed = await connectedFeed();
  expect(feed.meter.value("state", "engine-a/0")).toBe(4);
  feed.engine.publish(3);
  feed.engine.send(1);
  feed.engine.restart();
  feed.engine.publish(1);
  expect(feed.meter.value("state", "engine-a/0")).toBe(2);
  feed.time.advance(10);
  feed.disconnect();
  expect(feed.meter.value("state", "engine-a/0")).toBe(1);
  const counted = ["messages", "events", "blocks_stored", "duplicates", "restarts"].map((name) =>
    feed.meter.value(`${name}_total`, "engine-a/0"),
  );
  // The message that showed the restart came again in the history.
  expect(counted).toEqual([4, 4, 4, 2, 1]);
  expect(feed.meter.value("replays_total", "engine-a/0", "complete")).toBe(1);
  expect(feed.meter.value("replays_total", "engine-a/0", "empty")).toBe(1);
  expect(feed.meter.names.every((name) => name.includes("{engine-a/0"))).toBe(true);
  await feed.feed.stop();
  expect(feed.meter.names).toEqual([]);
});

test("lag is measured against the fastest message, whatever the engine's clock says", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(1);
  expect(feed.feed.describe()).toMatchObject({ lagMs: 0, clockOffsetMs: -1_000 });
  feed.engine.publishUnheard(1);
  feed.time.advance(300);
  feed.engine.send(1);
  expect(feed.feed.describe().lagMs).toBe(300);
  expect(feed.meter.value("lag_seconds", "engine-a/0")).toBeCloseTo(0.3, 3);
});

test("what a replay brings says nothing about lag", async () => {
  const feed = await startFeed();
  feed.engine.publishUnheard(1);
  feed.time.advance(60_000);
  feed.connect();
  expect(feed.sink.sequences).toEqual([0]);
  expect(feed.feed.describe()).toMatchObject({ lagMs: null, lastMessageAgeMs: null });
});

test.each(Object.keys(defaultFeedLimits))("limit %s is a positive whole number", async (name) => {
  for (const limit of [0, -1, 1.5, Number.NaN, 2 ** 31]) {
    await expect(startFeed({ limits: { [name]: limit } })).rejects.toThrow(RangeError);
  }
});
