/**
 * Symptom: under a flood of events a feed said `live complete` while a quarter of what had been published was still unread.
 * Mechanism: the state was made of numbers that had been read alone; what waited in the socket and in the feed's own queue
 * did not count.
 */
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { defaultFeedLimits } from "../../src/events/feed-limits.ts";
import { BacklogWatch } from "../../src/events/kv-feed.ts";
import { createWorkSlices } from "../../src/events/work-slices.ts";
import { createBusyClock, createTurns } from "./busy-time.ts";
import { connectedFeed, range } from "./feed-harness.ts";

const { behindMs } = defaultFeedLimits;

test("unread for longer than the bound: behind; read to the end: live again, as often as it happens", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(1);
  for (let flood = 0; flood < 2; flood++) {
    feed.socket.tell.onBacklog(true);
    feed.time.advance(behindMs - 1);
    feed.engine.publish(1);
    expect(feed.state).toBe("live complete");
    feed.time.advance(1);
    expect(feed.state).toBe("stale behind");
    feed.engine.publish(1);
    expect(feed.state, "a message that was read is not the end").toBe("stale behind");
    feed.socket.tell.onBacklog(false);
    expect(feed.state).toBe("live complete");
  }
  expect(feed.sink.sequences).toEqual(range(0, 4));
});

test("bursts that are read to their end, however many, leave nobody behind", async () => {
  const feed = await connectedFeed({ replay: false });
  for (let burst = 0; burst < 20; burst++) {
    feed.socket.tell.onBacklog(true);
    feed.engine.publish(1);
    feed.time.advance(behindMs * 0.8);
    feed.socket.tell.onBacklog(false);
    feed.time.advance(1);
  }
  expect(feed.sink.states.filter((state) => state.startsWith("stale"))).toEqual(["stale connecting"]);
});

test("what was read and is not processed yet counts as well", async () => {
  const time = createVirtualTime();
  const slices = createWorkSlices({ clock: createBusyClock(time), scheduler: createTurns(time), sliceMs: 2 });
  const feed = await connectedFeed({ replay: false, time, slices, limits: { behindMs: 5 } });
  feed.engine.publish(30);
  time.advance(5);
  expect(feed.sink.sequences.length).toBeLessThan(23);
  expect(feed.state).toBe("stale behind");
  time.advance(100);
  expect(feed.sink.sequences).toEqual(range(0, 29));
  expect(feed.state).toBe("live complete");
});

test("a lost connection says more than a backlog, and a feed that is stopped has none", async () => {
  const feed = await connectedFeed({ replay: false });
  feed.engine.publish(1);
  feed.socket.tell.onBacklog(true);
  feed.time.advance(behindMs);
  feed.disconnect();
  expect(feed.state).toBe("stale socket-lost");
  feed.socket.tell.onBacklog(false);
  feed.connect();
  feed.engine.publish(1);
  expect(feed.state).toBe("live complete");
  feed.socket.tell.onBacklog(true);
  await feed.feed.stop();
  feed.time.advance(behindMs);
  expect(feed.state).toBe("off stopped");
  expect(feed.time.pendingCount).toBe(0);
});

test("many short backlogs cost one timer, and a long one after them is timed from its own beginning", () => {
  const time = createVirtualTime();
  const changes: boolean[] = [];
  const watch = new BacklogWatch({ ...time, behindMs: 100, onChange: () => changes.push(watch.isBehind) });
  for (let backlog = 0; backlog < 50; backlog++) {
    watch.update(true);
    watch.update(false);
  }
  expect(time.pendingCount).toBe(1);
  time.advance(60);
  watch.update(true);
  time.advance(99);
  expect(changes).toEqual([]);
  time.advance(1);
  expect(changes).toEqual([true]);
  watch.stop();
  expect(changes).toEqual([true, false]);
});
