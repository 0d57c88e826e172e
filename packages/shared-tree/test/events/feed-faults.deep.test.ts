import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { type FeedHarness, range, startFeed } from "./feed-harness.ts";

/** One random thing that happens to a feed, its engine or the way between. */
function disturb(feed: FeedHarness, pick: (bound: number) => number): void {
  const { engine, time } = feed;
  const published = engine.history.length;
  const action = pick(100);
  if (action < 55) engine.publish(1 + pick(3));
  else if (action < 65) engine.publishUnheard(1 + pick(2));
  else if (action < 72 && published > 0) engine.send(Math.max(0, published - 1 - pick(6)));
  else if (action < 78) {
    engine.publishUnheard(3);
    for (const back of [1, 3, 2]) engine.send(engine.history.length - back);
  } else if (action < 84) {
    feed.disconnect();
    time.advance(pick(500));
    if (pick(2) === 0) engine.restart();
    engine.publishUnheard(pick(5));
    // Where no replay can tell, a new process that has missed exactly as many numbers passes for the old one.
    const { lastSequence } = feed.feed.describe();
    if (engine.history.length === (lastSequence ?? -1) + 1) engine.publishUnheard(1);
    feed.socket.tell.onUp();
  } else if (action < 86) {
    engine.restart();
    engine.publish(1);
  } else time.advance(pick(60));
}

function run(seed: number, feed: FeedHarness): void {
  const random = createSeededRandom(seed);
  const pick = (bound: number): number => random.integer(bound);
  const { engine, time } = feed;
  engine.answer = (replay) => {
    const fault = pick(10);
    if (fault === 0) return;
    if (fault > 2) return engine.answerInFull(replay);
    for (let at = replay.start; at < engine.history.length; at++) if (pick(12) > 0) engine.answerOne(replay, at);
    if (pick(2) === 0) engine.answerEnd(replay);
  };
  feed.connect();
  for (let step = 0; step < 150; step++) {
    disturb(feed, pick);
    time.advance(pick(8) === 0 ? pick(3_000) : 1);
  }
  // Now all is well again, and the engine says something.
  engine.answer = engine.answerInFull;
  time.advance(60_000);
  engine.publish(1);
  time.advance(60_000);
}

const seeds = range(1, 60);

test("whatever goes wrong, a feed with replay ends with the engine's present epoch, and says truly if it has all of it", async () => {
  const ends = new Map<string, number>();
  for (const seed of seeds) {
    const feed = await startFeed({ limits: { replayCooldownMs: 5_000 } });
    run(seed, feed);
    const { sequences, hashes, log } = feed.sink;
    const where = `seed ${seed}: run this test with seeds = [${seed}]`;
    const expected = await hashesOf(feed);
    expect(hashes, where).toEqual(sequences.map((sequence) => expected[sequence]));
    expect(sequences, where).toEqual([...new Set(sequences)].sort((a, b) => a - b));
    const isWhole = sequences.length === feed.engine.history.length;
    expect(feed.feed.state, where).toBe(isWhole ? "live" : "partial");
    expect(log.filter((line) => line.startsWith("batch")).length, where).toBe(feed.feed.describe().messages);
    ends.set(feed.state, (ends.get(feed.state) ?? 0) + 1);
    await feed.feed.stop();
    expect(feed.time.pendingCount, where).toBeLessThanOrEqual(1);
  }
  // The schedule is hard enough to leave holes, and easy enough to end well mostly.
  expect(ends.get("live complete")).toBeGreaterThan(seeds.length / 2);
});

test("without replay the numbers still ascend, and no batch of an old epoch is taken for one of the present", async () => {
  for (const seed of seeds) {
    const feed = await startFeed({ replay: false });
    run(seed, feed);
    const { sequences, hashes } = feed.sink;
    const expected = await hashesOf(feed);
    const where = `seed ${seed}: run this test with seeds = [${seed}]`;
    expect(hashes, where).toEqual(sequences.map((sequence) => expected[sequence]));
    expect(feed.feed.state, where).toBe(sequences.length === feed.engine.history.length ? "live" : "partial");
  }
});

/** The hash in each message of the engine's present epoch, read by a feed to which nothing happens. */
async function hashesOf({ engine }: FeedHarness): Promise<number[]> {
  const calm = await startFeed({ replay: false });
  calm.connect();
  calm.engine.history.push(...engine.history);
  for (const sequence of engine.history.keys()) calm.engine.send(sequence);
  return calm.sink.hashes;
}
