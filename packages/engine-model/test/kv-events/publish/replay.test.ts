import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { sharedPath } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { type EventDialect, eventDialects } from "../../../src/kv-events/codec/encode-events.ts";
import { startPublisher } from "./publisher-rig.ts";
import { askReplay, replayRequest } from "./raw-reader.ts";

const maxUint64 = 2n ** 64n - 1n;
const sequencesOf = (answers: readonly (readonly Uint8Array[])[]): number[] =>
  answers.slice(0, -1).map((frames) => Number(Buffer.from(frames.at(-2)!).readBigUInt64BE()));

describe.each(eventDialects)("%s", (dialect: EventDialect) => {
  const carriesTopic = dialect === "vllm-0.32" || dialect === "sglang-0.5.23";

  test("data and end have the frames of the dialect", async () => {
    const publisher = await startPublisher({ dialect });
    const payloads = [Buffer.from("first"), Buffer.from("second")];
    for (const payload of payloads) publisher.publishPayload(payload);
    const answers = await askReplay(publisher.replayEndpoint!, replayRequest(0n));
    const sequence = (value: number): Buffer => Buffer.from([0, 0, 0, 0, 0, 0, 0, value]);
    const topic = carriesTopic ? [Buffer.from("kv-events")] : [];
    const noTopic = carriesTopic ? [Buffer.alloc(0)] : [];
    expect(answers.map((frames) => frames.map((frame) => Buffer.from(frame)))).toEqual([
      [Buffer.alloc(0), ...topic, sequence(0), payloads[0]],
      [Buffer.alloc(0), ...topic, sequence(1), payloads[1]],
      [Buffer.alloc(0), ...noTopic, Buffer.alloc(8, 0xff), Buffer.alloc(0)],
    ]);
  });
});

test.each([
  { start: 0n, sequences: [7, 8, 9, 10, 11] },
  { start: 9n, sequences: [9, 10, 11] },
  { start: 11n, sequences: [11] },
  { start: 12n, sequences: [] },
  { start: maxUint64, sequences: [] },
])("from $start: the last five of twelve are there, without a word about the others", async ({ start, sequences }) => {
  const publisher = await startPublisher({ bufferSteps: 5 });
  for (let step = 0; step < 12; step++) publisher.publishPayload(Buffer.from(`step ${step}`));
  const answers = await askReplay(publisher.replayEndpoint!, replayRequest(start));
  expect(sequencesOf(answers)).toEqual(sequences);
  const payloads = answers.slice(0, -1).map((frames) => Buffer.from(frames.at(-1)!).toString());
  expect(payloads).toEqual(sequences.map((sequence) => `step ${sequence}`));
});

test("the buffer keeps exactly as many as it may, however many went through it", async () => {
  const publisher = await startPublisher({ bufferSteps: 100 });
  for (let step = 0; step < 100; step++) publisher.publishPayload(Buffer.of(1));
  expect(sequencesOf(await askReplay(publisher.replayEndpoint!, replayRequest(0n)))).toHaveLength(100);
  publisher.publishPayload(Buffer.of(1));
  const oneMore = sequencesOf(await askReplay(publisher.replayEndpoint!, replayRequest(0n)));
  expect([oneMore.length, oneMore[0], oneMore.at(-1)]).toEqual([100, 1, 100]);
  for (let step = 0; step < 1_000; step++) publisher.publishPayload(Buffer.of(1));
  const later = sequencesOf(await askReplay(publisher.replayEndpoint!, replayRequest(0n)));
  expect([later.length, later[0], later.at(-1)]).toEqual([100, 1_001, 1_100]);
});

test.each([
  { what: "without the delimiter", request: [replayRequest(0n)[1]!] },
  { what: "with something in the delimiter", request: [Buffer.of(1), replayRequest(0n)[1]!] },
  { what: "with a short start", request: [Buffer.alloc(0), Buffer.alloc(4)] },
  { what: "with one frame more", request: [...replayRequest(0n), Buffer.alloc(0)] },
  { what: "of one empty frame", request: [Buffer.alloc(0)] },
])("a request $what is ignored, and the next one answered", async ({ request }) => {
  const publisher = await startPublisher();
  publisher.publishPayload(Buffer.of(1));
  // Both go over one connection in this order: an answer to the first would come first.
  const { Dealer } = await import("zeromq");
  const socket = new Dealer({ linger: 0, receiveTimeout: 5_000 });
  onTestFinished(async () => socket.close());
  socket.connect(publisher.replayEndpoint!);
  await socket.send([...request]);
  await socket.send(replayRequest(maxUint64));
  const answer = await socket.receive();
  expect(answer.map((frame) => frame.length)).toEqual([0, 0, 8, 0]);
  expect(publisher.replays).toBe(1);
});

test("several clients at once get the whole buffer each", async () => {
  const publisher = await startPublisher();
  for (let step = 0; step < 500; step++) publisher.publishPayload(Buffer.alloc(1_000, step));
  const clients = Array.from({ length: 5 }, () => askReplay(publisher.replayEndpoint!, replayRequest(0n)));
  for (const answers of await Promise.all(clients)) expect(sequencesOf(answers)).toHaveLength(500);
});

const captures = sharedPath("fixtures");

describe.skipIf(!captures)("captured replays", () => {
  test.each([
    { folder: "vllm-0.23.0", dialect: "vllm-0.23" },
    { folder: "vllm-0.32.0", dialect: "vllm-0.32" },
    { folder: "sglang-0.5.23", dialect: "sglang-0.5.23" },
  ] as const)("$folder: the same frames for the same messages", async ({ folder, dialect }) => {
    const exchanges = gunzipSync(readFileSync(join(captures!, folder, "replay.jsonl.gz")))
      .toString()
      .trim()
      .split("\n")
      .map((line): { start: number; request_frames: string[]; replies: { frames: string[] }[] } => JSON.parse(line));
    const fromStart = exchanges.filter(({ start }) => start === 0);
    const whole = fromStart.reduce((longest, one) => (one.replies.length > longest.replies.length ? one : longest));
    expect(whole.replies.length).toBeGreaterThan(20);
    const topicFrame = dialect === "vllm-0.23" ? "kv-events" : Buffer.from(whole.replies[0]!.frames[1]!, "base64");
    const publisher = await startPublisher({ dialect, topic: topicFrame.toString() });
    for (const { frames } of whole.replies.slice(0, -1)) {
      publisher.publishPayload(Buffer.from(frames.at(-1)!, "base64"));
    }
    const request = whole.request_frames.map((frame) => Buffer.from(frame, "base64"));
    const answers = await askReplay(publisher.replayEndpoint!, request);
    const expected = whole.replies.map(({ frames }) => frames);
    expect(answers.map((frames) => frames.map((frame) => Buffer.from(frame).toString("base64")))).toEqual(expected);
  });
});
