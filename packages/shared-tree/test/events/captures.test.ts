import { readFileSync } from "node:fs";
import { join } from "node:path";
import { crc32, gunzipSync } from "node:zlib";
import { sharedPath } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { FakeReplay } from "./fake-transport.ts";
import { connectedFeed, type FeedHarness, range, startFeed } from "./feed-harness.ts";

interface LiveRecord {
  readonly session: number;
  readonly endpoint: number;
  readonly frames: readonly string[];
}

interface ReplayRecord {
  readonly session: number;
  readonly label: string;
  readonly port_offset: number;
  readonly start: number;
  readonly replies: readonly { readonly frames: readonly string[] }[];
}

const fixtures = sharedPath("fixtures");
const engines = ["vllm-0.32.0", "vllm-0.23.0", "sglang-0.5.23"];

function readRecords<T>(engine: string, file: string): T[] {
  const text = gunzipSync(readFileSync(join(fixtures!, engine, file))).toString();
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

const framesOf = (record: { readonly frames: readonly string[] }): Uint8Array[] =>
  record.frames.map((frame) => Buffer.from(frame, "base64"));

const sequenceOf = (record: LiveRecord): number => Number(Buffer.from(record.frames[1]!, "base64").readBigUInt64BE());

/** The live messages of one run of an engine process, by session and rank. */
function epochsOf(engine: string): Map<string, LiveRecord[]> {
  const epochs = new Map<string, LiveRecord[]>();
  for (const record of readRecords<LiveRecord>(engine, "events.jsonl.gz")) {
    const key = `${record.session}/${record.endpoint}`;
    epochs.set(key, [...(epochs.get(key) ?? []), record]);
  }
  return epochs;
}

const hear = (feed: FeedHarness, records: readonly LiveRecord[]): void => {
  for (const record of records) feed.socket.tell.onMessage(framesOf(record));
};

const answerWith =
  (recorded: ReplayRecord) =>
  (replay: FakeReplay): void => {
    for (const reply of recorded.replies) replay.answer(framesOf(reply));
  };

/** `NUMBER CRC` of each batch that a feed hands on. */
async function startTracing(options: { replay: boolean }): Promise<{ feed: FeedHarness; traced: string[] }> {
  const feed = await startFeed(options);
  const traced: string[] = [];
  const { sink } = feed;
  const batch = sink.batch.bind(sink);
  sink.batch = (events, sequence, checksum) => {
    traced.push(`${sequence} ${checksum} ${events.timestampS} ${events.count}`);
    batch(events, sequence, checksum);
  };
  return { feed, traced };
}

/** The first number of an epoch that the capture holds; the capture of SGLang's first epoch has missed number 0. */
const firstOf = (records: readonly LiveRecord[]): number => sequenceOf(records[0]!);

describe.skipIf(fixtures === undefined).each(engines)("captured %s", (engine) => {
  test("the live messages of each epoch, alone, end live where the capture has number 0", async () => {
    for (const [epoch, records] of epochsOf(engine)) {
      const feed = await connectedFeed({ replay: false });
      hear(feed, records);
      const [first, last] = [firstOf(records), sequenceOf(records.at(-1)!)];
      expect(feed.sink.sequences, epoch).toEqual(range(first, last));
      expect(feed.state, epoch).toBe(first === 0 ? "live complete" : "partial joined-late");
      expect(feed.feed.describe(), epoch).toMatchObject({ undecodedEvents: 0, refusedMessages: 0, duplicates: 0 });
    }
  });

  test("all epochs on one socket: each restart is found, the last epoch is live", async () => {
    const epochs = [...epochsOf(engine)].filter(([epoch]) => epoch.endsWith("/0")).map(([, records]) => records);
    const feed = await connectedFeed({ replay: false });
    for (const records of epochs) hear(feed, records);
    expect(feed.sink.epochs).toEqual(Array(epochs.length - 1).fill("restarted"));
    expect(feed.sink.sequences).toEqual(range(0, sequenceOf(epochs.at(-1)!.at(-1)!)));
    expect(feed.state).toBe("live complete");
  });

  test("replay equals live: the recorded answers give the same batches", async () => {
    const epochs = epochsOf(engine);
    let compared = 0;
    for (const recorded of readRecords<ReplayRecord>(engine, "replay.jsonl.gz")) {
      if (recorded.replies.length < 2) continue;
      const live = await startTracing({ replay: false });
      live.feed.connect();
      const records = epochs.get(`${recorded.session}/${recorded.port_offset}`)!;
      hear(live.feed, records);
      const replayed = await startTracing({ replay: true });
      replayed.feed.engine.answer = answerWith(recorded);
      replayed.feed.connect();
      const where = `session ${recorded.session}, ${recorded.label}`;
      const numberOf = (line: string): number => Number(line.split(" ")[0]);
      const [first, last] = [numberOf(replayed.traced[0]!), numberOf(replayed.traced.at(-1)!)];
      const inBoth = (line: string): boolean => numberOf(line) >= firstOf(records);
      const expected = live.traced.filter((line) => numberOf(line) >= first && numberOf(line) <= last);
      expect(replayed.traced.filter(inBoth), where).toEqual(expected);
      expect(replayed.traced, where).toHaveLength(last - first + 1);
      expect(replayed.feed.state, where).toBe(first === 0 ? "live complete" : "partial history-truncated");
      compared += expected.length;
    }
    expect(compared).toBeGreaterThan(100);
  });

  test("joining late with replay: history first, then what is live, none twice, and live", async () => {
    const recorded = readRecords<ReplayRecord>(engine, "replay.jsonl.gz").find(({ label }) => label === "from-0")!;
    const records = epochsOf(engine).get("0/0")!;
    const { feed, traced } = await startTracing({ replay: true });
    feed.engine.answer = answerWith(recorded);
    feed.socket.tell.onUp();
    // The capture's replay was asked for late in the epoch: everything up to there is live, too.
    hear(feed, records);
    feed.time.advance(10);
    expect(feed.sink.sequences).toEqual(range(0, sequenceOf(records.at(-1)!)));
    expect(feed.sink.epochs).toEqual([]);
    expect(feed.state).toBe("live complete");
    const checksums = new Map(records.map((record) => [sequenceOf(record), crc32(framesOf(record)[2]!)]));
    for (const line of traced) {
      const [sequence, checksum] = line.split(" ").map(Number);
      if (checksums.has(sequence!)) expect(checksum).toBe(checksums.get(sequence!));
    }
  });
});
