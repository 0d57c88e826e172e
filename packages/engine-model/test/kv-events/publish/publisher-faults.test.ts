import { createSeededRandom, systemClock } from "@espalier/core";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  createKvEventPublisher,
  type Delivery,
  type KvEventPublisher,
} from "../../../src/kv-events/publish/kv-event-publisher.ts";
import { createPublisher, subscribeTo } from "./publisher-rig.ts";
import { askReplay, type RawSubscriber, replayRequest } from "./raw-reader.ts";

const payloadOf = (mark: number): Uint8Array => Buffer.from(`message ${mark}`);
const marksOf = ({ messages }: RawSubscriber): string[] =>
  messages.map(({ sequence, payload }) => `${sequence}: ${Buffer.from(payload)}`);

async function replayed(publisher: KvEventPublisher, start = 0n): Promise<string[]> {
  const answers = await askReplay(publisher.replayEndpoint!, replayRequest(start));
  return answers.slice(0, -1).map((frames) => {
    const [sequence, payload] = frames.slice(-2).map((frame) => Buffer.from(frame));
    return `${sequence!.readBigUInt64BE()}: ${payload}`;
  });
}

describe("deliveries", () => {
  // A message that is late waits for the next one, whatever becomes of that.
  test.each<{ deliveries: Delivery[]; arrive: number[] }>([
    { deliveries: ["late", "late", "sent"], arrive: [0, 2, 1] },
    { deliveries: ["late", "lost", "sent"], arrive: [0, 2] },
    { deliveries: ["late", "twice", "sent"], arrive: [1, 1, 0, 2] },
    { deliveries: ["lost", "late", "lost", "sent"], arrive: [1, 3] },
    { deliveries: ["sent", "late", "late", "late", "sent"], arrive: [0, 1, 2, 4, 3] },
    { deliveries: ["twice", "lost", "twice"], arrive: [0, 0, 2, 2] },
  ])("$deliveries: $arrive arrive, and all can be replayed", async ({ deliveries, arrive }) => {
    const publisher = createPublisher();
    await publisher.start();
    const subscriber = await subscribeTo(publisher);
    for (const [at, delivery] of deliveries.entries()) publisher.publishPayload(payloadOf(at), delivery);
    await waitFor(() => subscriber.frames.length >= arrive.length, { what: "messages" });
    expect(marksOf(subscriber)).toEqual(arrive.map((at) => `${at}: message ${at}`));
    expect(await replayed(publisher)).toEqual(deliveries.map((_, at) => `${at}: message ${at}`));
  });

  test("the last message before the end, if it is late, never arrives", async () => {
    const publisher = createPublisher();
    await publisher.start();
    const subscriber = await subscribeTo(publisher);
    publisher.publishPayload(payloadOf(0));
    publisher.publishPayload(payloadOf(1), "late");
    publisher.sendFrames([Buffer.from("mark"), Buffer.alloc(8), Buffer.alloc(1)]);
    await waitFor(() => subscriber.frames.length >= 2, { what: "messages" });
    expect(subscriber.messages.map(({ topic }) => topic)).toEqual(["kv-events", "mark"]);
  });

  test.each([1, 2, 3])("seed %i: any run of faults, skips and restarts is as a list would have it", async (seed) => {
    const random = createSeededRandom(seed);
    const bufferSteps = 1 + random.integer(20);
    const publisher = createPublisher({ bufferSteps });
    await publisher.start();
    const subscriber = await subscribeTo(publisher);
    const arrive: string[] = [];
    let kept: { readonly sequence: number; readonly text: string }[] = [];
    let next = 0;
    let late: string | undefined;
    for (let mark = 0; mark < 200; mark++) {
      const delivery = (["sent", "sent", "lost", "twice", "late"] as const)[random.integer(5)]!;
      const text = `${next}: message ${mark}`;
      expect(publisher.publishPayload(payloadOf(mark), delivery)).toBe(next);
      kept = [...kept, { sequence: next++, text }].slice(-bufferSteps);
      if (delivery === "sent" || delivery === "twice") arrive.push(text);
      if (delivery === "twice") arrive.push(text);
      if (late !== undefined) arrive.push(late);
      late = delivery === "late" ? text : undefined;
      const other = random.integer(30);
      if (other === 0) {
        publisher.restart();
        [kept, next, late] = [[], 0, undefined];
      } else if (other < 4) {
        publisher.skipSequences(other);
        next += other;
      }
      expect(publisher.nextSequence).toBe(next);
    }
    await waitFor(() => subscriber.frames.length >= arrive.length, { what: "messages" });
    expect(marksOf(subscriber)).toEqual(arrive);
    const start = Math.max(0, next - random.integer(30));
    const expected = kept.filter(({ sequence }) => sequence >= start).map(({ text }) => text);
    expect(await replayed(publisher, BigInt(start))).toEqual(expected);
  });
});

describe("without sockets", () => {
  test("what is published before the start is numbered and can be replayed afterwards, but is not sent", async () => {
    const publisher = createPublisher();
    expect([publisher.subscriptions, publisher.dropped, publisher.replays]).toEqual([0, 0, 0]);
    expect(publisher.publishPayload(payloadOf(0))).toBe(0);
    await publisher.start();
    const subscriber = await subscribeTo(publisher);
    publisher.publishPayload(payloadOf(1));
    await waitFor(() => subscriber.frames.length >= 1, { what: "messages" });
    expect(marksOf(subscriber)).toEqual(["1: message 1"]);
    expect(await replayed(publisher)).toEqual(["0: message 0", "1: message 1"]);
  });

  test("stopped twice, and stopped without a start: nothing happens", async () => {
    const never = createPublisher();
    await never.stop();
    const publisher = createPublisher();
    await publisher.start();
    await publisher.stop();
    await publisher.stop();
    expect([publisher.subscriptions, publisher.dropped, publisher.replays]).toEqual([0, 0, 0]);
  });

  test("started again after a stop: the same ports, the numbers go on, and what was published is still there", async () => {
    const publisher = createPublisher();
    await publisher.start();
    const before = [publisher.endpoint, publisher.replayEndpoint];
    publisher.publishPayload(payloadOf(0));
    await publisher.stop();
    publisher.publishPayload(payloadOf(1));
    await publisher.reconnect();
    expect([publisher.endpoint, publisher.replayEndpoint]).toEqual(before);
    const subscriber = await subscribeTo(publisher);
    publisher.publishPayload(payloadOf(2));
    await waitFor(() => subscriber.frames.length >= 1, { what: "messages" });
    expect(subscriber.sequences).toEqual([2]);
    expect(await replayed(publisher)).toHaveLength(3);
  });

  test("without a replay port there is no such endpoint, before and after the start", async () => {
    const { replayPort: _, ...options } = { replayPort: 0, dialect: "trtllm", topic: "" } as const;
    const publisher = createKvEventPublisher({ ...options, clock: systemClock, logger: createRecordingLogger() });
    onTestFinished(() => publisher.stop());
    expect(publisher.replayEndpoint).toBeUndefined();
    await publisher.start();
    expect([publisher.replayEndpoint, publisher.replays]).toEqual([undefined, 0]);
  });
});

describe("bounds", () => {
  test("messages for several subscribers count once; those beyond the mark are dropped and can be replayed", async () => {
    const publisher = createPublisher({ highWaterMark: 100 });
    await publisher.start();
    const subscribers = [await subscribeTo(publisher), await subscribeTo(publisher)];
    for (let mark = 0; mark < 103; mark++) publisher.publishPayload(payloadOf(mark));
    expect(publisher.dropped).toBe(3);
    await waitFor(() => subscribers.every(({ frames }) => frames.length >= 100), { what: "messages" });
    expect(await replayed(publisher, 100n)).toEqual(["100: message 100", "101: message 101", "102: message 102"]);
    // Once they are gone there is room again.
    await waitFor(
      () => {
        publisher.publishPayload(payloadOf(999));
        return subscribers.every(({ sequences }) => sequences.some((sequence) => sequence > 102));
      },
      { what: "later messages" },
    );
  });

  test("what was dropped is counted from the last opening of the sockets on", async () => {
    const publisher = createPublisher({ highWaterMark: 1 });
    await publisher.start();
    for (let mark = 0; mark < 5; mark++) publisher.publishPayload(payloadOf(mark));
    expect(publisher.dropped).toBe(4);
    await publisher.reconnect();
    expect(publisher.dropped).toBe(0);
  });

  test.each([
    { given: { bufferSteps: 1 }, fits: true },
    { given: { bufferSteps: 1_000_000, highWaterMark: 1_000_000 }, fits: true },
    { given: { highWaterMark: 1_000_001 }, fits: false },
    { given: { highWaterMark: 0 }, fits: false },
    { given: { port: 65_535, replayPort: 65_535, rank: 65_535 }, fits: true },
    { given: { replayPort: 65_536 }, fits: false },
    { given: { rank: 65_536 }, fits: false },
    { given: { rank: 0.5 }, fits: false },
    { given: { port: Number.NaN }, fits: false },
  ])("$given: $fits", ({ given, fits }) => {
    const [name, value] = Object.entries(given).at(0)!;
    if (fits) createPublisher(given);
    else
      expect(() => createPublisher(given)).toThrow(
        new RegExp(`^${name} must be a whole number from [01] to \\d+, not ${value}$`),
      );
  });
});
