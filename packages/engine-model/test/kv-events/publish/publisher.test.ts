import { createServer } from "node:net";
import { type Clock, silentLogger, systemScheduler } from "@espalier/core";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import type { WireEvent } from "../../../src/kv-events/codec/encode-events.ts";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import {
  createKvEventPublisher,
  type KvEventPublisher,
  type KvEventPublisherOptions,
} from "../../../src/kv-events/publish/kv-event-publisher.ts";
import { plainEvents } from "../codec/plain-events.ts";
import { subscribeTo } from "./publisher-rig.ts";
import { askReplay, type RawSubscriber, replayRequest, subscribe } from "./raw-reader.ts";

const clock: Clock = { nowMs: () => 5_000, wallMs: () => 1_795_226_916_250 };
const removed = (hash: number): WireEvent => ({ type: "removed", hashes: [BigInt(hash)] });

async function startPublisher(options: Partial<KvEventPublisherOptions> = {}): Promise<KvEventPublisher> {
  const dialect = "vllm-0.32";
  const publisher = createKvEventPublisher({
    topic: "kv-events",
    dialect,
    rank: 0,
    clock,
    scheduler: systemScheduler,
    logger: silentLogger,
    ...options,
  });
  onTestFinished(() => publisher.stop());
  await publisher.start();
  return publisher;
}

function canBind(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

const arrived = (subscriber: RawSubscriber, count: number): Promise<unknown> =>
  waitFor(() => subscriber.frames.length >= count, { what: `${count} messages` });

describe("live messages", () => {
  test("three frames each: topic, sequence from 0, payload in the dialect", async () => {
    const publisher = await startPublisher();
    const subscriber = await subscribeTo(publisher);
    expect(publisher.publish([removed(1), removed(2)])).toBe(0);
    expect(publisher.publish([])).toBeUndefined();
    expect(publisher.publish([{ type: "cleared" }])).toBe(1);
    await arrived(subscriber, 2);
    expect(subscriber.frames.map((frames) => frames.map(({ length }) => length).slice(0, 2))).toEqual([
      [9, 8],
      [9, 8],
    ]);
    expect(subscriber.messages.map(({ topic, sequence }) => [topic, sequence])).toEqual([
      ["kv-events", 0],
      ["kv-events", 1],
    ]);
    const decoder = createEventDecoder();
    expect(decoder.decode(subscriber.messages[0]!.payload)).toMatchObject({ refused: undefined, events: 2 });
    expect(decoder.batch).toMatchObject({ timestampS: 1_795_226_916.25, rank: 0 });
    expect(plainEvents(decoder.batch).map(({ hashes }) => hashes)).toEqual([[1n], [2n]]);
  });

  test("without a rank, with byte hashes, with the envelope as a map", async () => {
    const { rank: _, ...options } = { rank: 0, hashes: "bytes", envelope: "map" } as const;
    const publisher = createKvEventPublisher({
      topic: "",
      dialect: "vllm-0.23",
      clock,
      scheduler: systemScheduler,
      logger: silentLogger,
      ...options,
    });
    onTestFinished(() => publisher.stop());
    await publisher.start();
    const subscriber = await subscribeTo(publisher);
    publisher.publish([removed(7)]);
    await arrived(subscriber, 1);
    const { topic, payload } = subscriber.messages[0]!;
    const decoder = createEventDecoder();
    expect(decoder.decode(payload)).toMatchObject({ refused: undefined, events: 1 });
    expect([topic, payload[0], decoder.batch.rank, plainEvents(decoder.batch)[0]!.hashes]).toEqual([
      "",
      0x83,
      -1,
      [7n],
    ]);
  });

  test("a subscriber of another topic hears nothing", async () => {
    const publisher = await startPublisher();
    const other = await subscribeTo(publisher, "load");
    const subscriber = await subscribeTo(publisher, "kv-");
    publisher.publish([removed(1)]);
    publisher.sendFrames([Buffer.from("load"), Buffer.alloc(8), Buffer.from("junk")]);
    await arrived(other, 1);
    await arrived(subscriber, 1);
    expect(other.messages.map(({ topic }) => topic)).toEqual(["load"]);
    expect(subscriber.messages.map(({ topic }) => topic)).toEqual(["kv-events"]);
  });

  test("it dials a subscriber that has bound", async () => {
    const subscriber = await subscribe("tcp://127.0.0.1:*", { mode: "bind" });
    onTestFinished(() => subscriber.close());
    const publishers = await Promise.all(
      ["a", "b"].map((topic) => startPublisher({ topic, connect: subscriber.endpoint })),
    );
    for (const publisher of publishers) {
      expect(publisher.endpoint).toBe(subscriber.endpoint);
      await waitFor(() => publisher.subscriptions === 1, { what: "subscription" });
      publisher.publish([removed(1)]);
    }
    await arrived(subscriber, 2);
    expect(subscriber.messages.map(({ topic }) => topic).sort()).toEqual(["a", "b"]);
  });

  test("a flood within one turn of the event loop arrives whole and in order, up to the high-water mark", async () => {
    const publisher = await startPublisher({ highWaterMark: 2_000 });
    const subscriber = await subscribeTo(publisher);
    for (let hash = 0; hash < 2_000; hash++) publisher.publish([removed(hash)]);
    expect(publisher.dropped).toBe(0);
    publisher.publish([removed(2_000)]);
    expect(publisher.dropped).toBe(1);
    await arrived(subscriber, 2_000);
    expect(subscriber.sequences).toEqual(Array.from({ length: 2_000 }, (_, sequence) => sequence));
    expect(publisher.nextSequence).toBe(2_001);
  });

  test("subscriptions are counted as they come and go", async () => {
    const publisher = await startPublisher();
    expect(publisher.subscriptions).toBe(0);
    const first = await subscribeTo(publisher);
    const second = await subscribeTo(publisher);
    expect(publisher.subscriptions).toBe(2);
    await first.close();
    await waitFor(() => publisher.subscriptions === 1, { what: "departure" });
    await second.close();
    await waitFor(() => publisher.subscriptions === 0, { what: "second departure" });
  });
});

describe("faults", () => {
  test.each([
    { delivery: "lost", sequences: [0, 2] },
    { delivery: "twice", sequences: [0, 1, 1, 2] },
    { delivery: "late", sequences: [0, 2, 1] },
    { delivery: "sent", sequences: [0, 1, 2] },
  ] as const)("a message $delivery: $sequences arrive, all can be replayed", async ({ delivery, sequences }) => {
    const publisher = await startPublisher({ replayPort: 0 });
    const subscriber = await subscribeTo(publisher);
    publisher.publish([removed(10)]);
    publisher.publish([removed(11)], delivery);
    publisher.publish([removed(12)]);
    await arrived(subscriber, sequences.length);
    expect(subscriber.sequences).toEqual(sequences);
    const replayed = await askReplay(publisher.replayEndpoint!, replayRequest(0n));
    expect(replayed.slice(0, -1).map((frames) => Buffer.from(frames[2]!).readBigUInt64BE())).toEqual([0n, 1n, 2n]);
  });

  test("skipped numbers are nowhere, junk has a number, frames go out as they are", async () => {
    const publisher = await startPublisher({ replayPort: 0 });
    const subscriber = await subscribeTo(publisher);
    publisher.publish([removed(1)]);
    publisher.skipSequences(3);
    expect(publisher.nextSequence).toBe(4);
    expect(publisher.publishPayload(Uint8Array.of(0xc1, 0xff))).toBe(4);
    publisher.sendFrames([Buffer.from("only one")]);
    await arrived(subscriber, 3);
    expect(subscriber.frames.map((frames) => frames.length)).toEqual([3, 3, 1]);
    expect(createEventDecoder().decode(subscriber.frames[1]![2]!).refused).toBe("invalid");
    const replayed = await askReplay(publisher.replayEndpoint!, replayRequest(1n));
    expect(replayed.slice(0, -1).map((frames) => Buffer.from(frames[2]!).readBigUInt64BE())).toEqual([4n]);
  });

  test("a restart numbers from 0 and forgets what it published, also what was still to be sent late", async () => {
    const publisher = await startPublisher({ replayPort: 0 });
    const subscriber = await subscribeTo(publisher);
    for (let hash = 0; hash < 3; hash++) publisher.publish([removed(hash)]);
    publisher.publish([removed(3)], "late");
    publisher.restart();
    expect(publisher.nextSequence).toBe(0);
    expect(await askReplay(publisher.replayEndpoint!, replayRequest(0n))).toHaveLength(1);
    publisher.publish([removed(4)]);
    await arrived(subscriber, 4);
    expect(subscriber.sequences).toEqual([0, 1, 2, 0]);
    expect(await askReplay(publisher.replayEndpoint!, replayRequest(0n))).toHaveLength(2);
    expect(publisher.replays).toBe(2);
  });

  test("reconnecting keeps ports, numbers and the buffer, and subscribers come back", async () => {
    const publisher = await startPublisher({ replayPort: 0 });
    const subscriber = await subscribeTo(publisher);
    publisher.publish([removed(1)]);
    await arrived(subscriber, 1);
    const endpoints = [publisher.endpoint, publisher.replayEndpoint];
    const reconnecting = publisher.reconnect();
    publisher.publish([removed(2)]);
    await reconnecting;
    expect([publisher.endpoint, publisher.replayEndpoint]).toEqual(endpoints);
    await waitFor(() => publisher.subscriptions === 1, { what: "subscription after the reconnect" });
    publisher.publish([removed(3)]);
    await arrived(subscriber, 2);
    expect(subscriber.sequences).toEqual([0, 2]);
    expect(await askReplay(publisher.replayEndpoint!, replayRequest(0n))).toHaveLength(4);
  });
});

describe("start and stop", () => {
  // A closed socket of the library holds its port for a moment more; binding it again failed now and then.
  test.each(["reconnect", "start after stop"])(
    "by %s the ports can be taken again at once, many times over",
    async (how) => {
      const publisher = await startPublisher({ replayPort: 0 });
      const { endpoint, replayEndpoint } = publisher;
      const subscriber = await subscribeTo(publisher);
      for (let round = 0; round < 30; round++) {
        if (how === "reconnect") await publisher.reconnect();
        else await publisher.stop().then(() => publisher.start());
      }
      expect([publisher.endpoint, publisher.replayEndpoint]).toEqual([endpoint, replayEndpoint]);
      await waitFor(() => publisher.subscriptions === 1, { what: "subscription" });
      publisher.publish([removed(1)]);
      await arrived(subscriber, 1);
    },
  );

  test("ports are known once started, and free once stopped", async () => {
    const publisher = await startPublisher({ replayPort: 0 });
    const subscriber = await subscribeTo(publisher);
    publisher.publish([removed(1)]);
    const ports = [publisher.endpoint, publisher.replayEndpoint!].map((endpoint) => Number(new URL(endpoint).port));
    expect(ports.every((port) => port > 0)).toBe(true);
    await publisher.stop();
    await subscriber.close();
    for (const port of ports) await waitFor(() => canBind(port), { what: `port ${port} to be free` });
    // Publishing without sockets numbers and keeps, as an engine whose network is gone.
    expect(publisher.publish([removed(2)])).toBe(1);
    publisher.sendFrames([Buffer.from("nobody hears this")]);
  });

  test.each(["port", "replayPort"])("a %s that is taken: start fails, and stop releases the other", async (name) => {
    const taken = await startPublisher();
    const port = Number(new URL(taken.endpoint).port);
    const logger = createRecordingLogger();
    const options = { topic: "", dialect: "trtllm", clock, scheduler: systemScheduler, logger } as const;
    const publisher = createKvEventPublisher({ ...options, replayPort: 0, [name]: port });
    await expect(publisher.start()).rejects.toThrow(/in use/i);
    await publisher.stop();
    expect(logger.lines).toEqual([]);
  });

  test.each([
    { bufferSteps: 0 },
    { bufferSteps: 1_000_001 },
    { highWaterMark: 1.5 },
    { port: 65_536 },
    { replayPort: -1 },
    { rank: -1 },
  ])("%j is refused", (wrong) => {
    const options = { topic: "", dialect: "trtllm", clock, scheduler: systemScheduler, logger: silentLogger } as const;
    expect(() => createKvEventPublisher({ ...options, ...wrong })).toThrow(RangeError);
  });
});
