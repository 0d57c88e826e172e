import { expect, test } from "vitest";
import { liveFrames } from "./fake-transport.ts";
import { connectedFeed, type FeedHarness } from "./feed-harness.ts";
import { storedPayload } from "./messages.ts";

// A message that had waited in a queue while its engine was restarted was taken for one of the new epoch that came early:
// replays for the hole before it used up what a feed may ask for, and the next true message looked like another restart.

/** Sends a message of an epoch in which number n was published n seconds after `bornS`. */
function tell({ socket }: FeedHarness, bornS: number, sequence: number): void {
  socket.tell.onMessage(liveFrames(sequence, storedPayload(bornS + sequence, bornS + sequence)));
}

async function restarted(): Promise<FeedHarness> {
  const feed = await connectedFeed({ replay: false });
  for (const sequence of [0, 1, 2, 3]) tell(feed, 100, sequence);
  for (const sequence of [0, 1]) tell(feed, 10_000, sequence);
  expect(feed.feed.describe().restarts).toBe(1);
  return feed;
}

test("leftovers of the epoch before are counted and change nothing", async () => {
  const feed = await restarted();
  const before = feed.sink.sequences.length;
  for (const sequence of [4, 5, 6]) tell(feed, 100, sequence);
  feed.time.advance(1_000);
  for (const sequence of [2, 3]) tell(feed, 10_000, sequence);
  expect(feed.sink.sequences.slice(before)).toEqual([2, 3]);
  expect(feed.feed.describe()).toMatchObject({ restarts: 1, gaps: 0, duplicates: 3, lastSequence: 3 });
});

test("a message that came early is no leftover", async () => {
  const feed = await restarted();
  const before = feed.sink.sequences.length;
  for (const sequence of [3, 2]) tell(feed, 10_000, sequence);
  feed.time.advance(1_000);
  expect(feed.sink.sequences.slice(before)).toEqual([2, 3]);
  expect(feed.feed.describe().duplicates).toBe(0);
});

test("an engine whose clock was set back is heard again after so many messages", async () => {
  const feed = await restarted();
  for (let sequence = 3; sequence < 3 + 64; sequence++) tell(feed, 100, sequence);
  feed.time.advance(1_000);
  expect(feed.feed.describe()).toMatchObject({ duplicates: 64, gaps: 0 });
  tell(feed, 100, 67);
  feed.time.advance(1_000);
  expect(feed.feed.describe()).toMatchObject({ gaps: 1, lastSequence: 67 });
});
