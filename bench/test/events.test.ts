import { createSeededRandom, systemClock } from "@espalier/core";
import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { eventKind } from "@espalier/prefix-index";
import { expect, test } from "vitest";
import { eventsSuite } from "../src/suites/events.ts";
import { decodeWithLibrary } from "../src/suites/events-baseline.ts";
import { ingestMs } from "../src/suites/events-ingest.ts";
import { runEventsOnce } from "../src/suites/events-run.ts";
import { type EventTraffic, makeEventTraffic } from "../src/suites/events-traffic.ts";

const shape = { feeds: 4, liveBlocks: 200, messagesPerFeed: 50 };
const traffic = (seed = 1): EventTraffic => makeEventTraffic(shape, createSeededRandom(seed));

/** Applies messages to a set of live blocks per feed; says what does not fit. */
function follow({ warmUp, steady }: EventTraffic) {
  const decoder = createEventDecoder();
  const live = Array.from({ length: shape.feeds }, () => new Map<string, number>());
  const counts = { stored: 0, removed: 0, tokens: 0, largeTokens: 0 };
  const sizes = new Set<number>();
  for (const [at, { feed, payload }] of [...warmUp, ...steady].entries()) {
    expect(decoder.decode(payload)).toMatchObject({ refused: undefined, unknownEvents: 0, malformedEvents: 0 });
    const { batch } = decoder;
    const blocks = live[feed]!;
    for (let event = 0; event < batch.count; event++) {
      const [start, end] = [batch.hashStart[event]!, batch.hashStart[event + 1]!];
      const nameOf = (words: Uint32Array, index: number): string => `${words[2 * index]},${words[2 * index + 1]}`;
      const isStored = batch.kind[event] === eventKind.stored;
      if (isStored && batch.hasParent[event] === 1) expect(blocks.has(nameOf(batch.parent, event))).toBe(true);
      for (let hash = start; hash < end; hash++) {
        if (isStored) blocks.set(nameOf(batch.hashes, hash), at);
        else expect(blocks.delete(nameOf(batch.hashes, hash))).toBe(true);
      }
      if (at < warmUp.length) continue;
      counts[isStored ? "stored" : "removed"] += end - start;
      if (isStored) sizes.add(end - start);
    }
    counts.tokens += batch.tokenStart[batch.count]!;
    counts.largeTokens += batch.tokens
      .subarray(0, batch.tokenStart[batch.count])
      .filter((token) => token > 65_535).length;
  }
  return { live: live.map((blocks) => blocks.size), counts, sizes: [...sizes].sort() };
}

test("the traffic is one that engines could send: parents are there, removals take what is there", () => {
  const made = traffic();
  const { live, counts, sizes } = follow(made);
  expect(counts.stored).toBe(counts.removed);
  expect(counts.stored + counts.removed).toBe(made.blockOps);
  expect(live.every((blocks) => blocks === shape.liveBlocks)).toBe(true);
  expect(sizes).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(made.steady).toHaveLength(shape.feeds * shape.messagesPerFeed);
  expect(made.bytes).toBe(made.steady.reduce((sum, { payload }) => sum + payload.length, 0));
  // Some tokens take all 32 bits on the wire, most take 16.
  expect(counts.largeTokens / counts.tokens).toBeGreaterThan(0.05);
  expect(counts.largeTokens / counts.tokens).toBeLessThan(0.25);
});

test("the same seed makes the same bytes, another seed others", () => {
  const bytesOf = (seed: number): string =>
    traffic(seed)
      .steady.map(({ payload }) => Buffer.from(payload).toString("hex"))
      .join();
  expect(bytesOf(3)).toBe(bytesOf(3));
  expect(bytesOf(3)).not.toBe(bytesOf(4));
});

test("a run measures the decoder, the socket and the library over the same messages", async () => {
  const made = traffic();
  const events = decodeWithLibrary(made.steady);
  expect(events).toBeGreaterThan(2 * made.steady.length);
  const run = await runEventsOnce({ traffic: made, passes: 3, clock: systemClock });
  expect(Object.keys(run.espalier)).toEqual([
    "block_ops_per_s",
    "decode_block_ops_per_s",
    "socket_block_ops_per_s",
    "bytes_per_s",
    "messages_per_s",
  ]);
  for (const figures of [run.espalier, run.library]) {
    expect(Object.values(figures).every((value) => Number.isFinite(value) && value > 0)).toBe(true);
    expect(figures.bytes_per_s! / figures.messages_per_s!).toBeCloseTo(made.bytes / made.steady.length, 3);
  }
});

test("traffic that leaves the index with other blocks than the engines have fails the run", () => {
  const made = traffic();
  expect(ingestMs(made, systemClock)).toBeGreaterThan(0);
  expect(() => ingestMs({ ...made, steady: made.steady.slice(1), liveBlocks: 1 }, systemClock)).toThrow(
    /feed 0 ends with/,
  );
});

test("a message that does not decode fails the run", async () => {
  const made = traffic();
  const steady = [...made.steady, { feed: 0, payload: Uint8Array.of(0xc1) }];
  const run = runEventsOnce({ traffic: { ...made, steady }, passes: 1, clock: systemClock });
  await expect(run).rejects.toThrow(/not decoded: invalid/);
});

test("the suite runs from its arguments, and refuses wrong ones", async () => {
  const notes: string[] = [];
  const { report, table } = await eventsSuite.run(["--quick"], (line) => notes.push(line));
  expect(report.params).toMatchObject({ runs: 1, feeds: 8, block_size: 16 });
  expect(notes).toHaveLength(1);
  expect(table).toContain("decode_block_ops_per_s");
  for (const runs of ["0", "1.5", "101", "many"]) {
    await expect(eventsSuite.run(["--runs", runs], () => {})).rejects.toThrow(/--runs/);
  }
});
