import { once } from "node:events";
import { createServer } from "node:net";
import { silentLogger, systemClock, systemScheduler } from "@espalier/core";
import {
  createEventDecoder,
  createKvEventPublisher,
  type KvEventPublisher,
  type KvEventPublisherOptions,
  type WireEvent,
} from "@espalier/engine-model/kv-events";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { Publisher } from "zeromq";
import type { EventTransport, OpenSocket } from "../../src/events/event-transport.ts";
import type { FeedLimits } from "../../src/events/feed-limits.ts";
import { createKvFeed, type FeedEndpoints, type KvFeed } from "../../src/events/kv-feed.ts";
import { createReplayGate } from "../../src/events/replay-run.ts";
import { createSharedBinds } from "../../src/events/shared-binds.ts";
import { createWorkSlices } from "../../src/events/work-slices.ts";
import { createZmqTransport } from "../../src/events/zmq-transport.ts";
import { liveFrames } from "./fake-transport.ts";
import { range } from "./feed-harness.ts";
import { storedPayload } from "./messages.ts";
import { createRecordingSink, type RecordingSink } from "./recording-sink.ts";

const slices = createWorkSlices({ clock: systemClock, scheduler: systemScheduler });
const releases: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const release of releases.splice(0).reverse()) await release();
});

async function startPublisher(options: Partial<KvEventPublisherOptions> = {}): Promise<KvEventPublisher> {
  const publisher = createKvEventPublisher({
    ...{ topic: "kv-events", dialect: "vllm-0.32", replayPort: 0, clock: systemClock, logger: silentLogger },
    ...options,
  });
  await publisher.start();
  releases.push(() => publisher.stop());
  return publisher;
}

const firstQuietPort = 20_000;
const quietPorts = 8_000;
let triedPorts = process.pid;

/** A port that is free now, and that no system hands out when somebody asks for any: it can be taken twice in a row. */
async function quietPort(): Promise<number> {
  for (;;) {
    const port = firstQuietPort + (triedPorts++ % quietPorts);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true));
    });
    await new Promise((resolve) => server.close(resolve));
    if (isFree) return port;
  }
}

interface RealFeed {
  readonly feed: KvFeed;
  readonly sink: RecordingSink;
  /** Waits until the latest epoch has these numbers. */
  sees(sequences: readonly number[]): Promise<unknown>;
  /** Waits for `STATE REASON`. */
  is(state: string): Promise<unknown>;
}

async function startFeed(
  endpoints: FeedEndpoints,
  {
    limits = {},
    transport = createZmqTransport(slices),
  }: { limits?: Partial<FeedLimits>; transport?: EventTransport } = {},
): Promise<RealFeed> {
  const [clock, scheduler] = [systemClock, systemScheduler];
  const sink = createRecordingSink();
  const feed = createKvFeed({
    ...{ key: "engine-a/0", endpoints, sink, decoder: createEventDecoder(), transport, clock, scheduler, limits },
    ...{ slices, replayGate: createReplayGate() },
  });
  await feed.start();
  releases.push(() => feed.stop());
  const state = (): string => `${feed.state} ${feed.reason}`;
  const now = (): string => `${sink.sequences.slice(0, 20)} (${state()})`;
  return {
    feed,
    sink,
    async sees(sequences) {
      const seen = (): boolean => sink.sequences.join() === sequences.join();
      await waitFor(seen, { what: `batches ${sequences.slice(0, 20)}`, deadlineMs: 10_000 }).catch((error) => {
        throw new Error(`${error.message}: ${now()}`);
      });
    },
    async is(wanted) {
      await waitFor(() => state() === wanted, { what: `state ${wanted}`, deadlineMs: 10_000 }).catch((error) => {
        throw new Error(`${error.message}: ${now()}`);
      });
    },
  };
}

const endpointsOf = ({ endpoint, replayEndpoint }: KvEventPublisher, topic = ""): FeedEndpoints => ({
  ...{ endpoint, replayEndpoint, topic, mode: "connect" },
});

/** One event that stores one block. */
function stored(hash: number): WireEvent[] {
  const block = { hashes: [BigInt(hash)], parentHash: undefined, tokens: Uint32Array.of(hash), blockSize: 1 };
  return [{ type: "stored", ...block, adapter: undefined, cacheSalt: undefined }];
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

const heard = (publisher: KvEventPublisher): Promise<unknown> =>
  waitFor(() => publisher.subscriptions > 0, { what: "subscription" });

test.each(["vllm-0.32", "vllm-0.23", "sglang-0.5.23"] as const)(
  "join, replay and follow an engine that speaks %s",
  async (dialect) => {
    const publisher = await startPublisher({ dialect });
    for (const hash of range(100, 104)) publisher.publish(stored(hash));
    const { sink, sees, is } = await startFeed(endpointsOf(publisher, "kv-ev"));
    await sees(range(0, 4));
    await is("live complete");
    await heard(publisher);
    for (const hash of range(105, 107)) publisher.publish(stored(hash));
    await sees(range(0, 7));
    expect(sink.hashes).toEqual(range(100, 107));
    await is("live complete");
  },
);

test("an engine that starts after its reader", async () => {
  const first = await startPublisher({ port: await quietPort(), replayPort: await quietPort() });
  const endpoints = endpointsOf(first);
  await first.stop();
  const { feed, is, sees } = await startFeed(endpoints);
  expect(`${feed.state} ${feed.reason}`).toBe("stale connecting");
  await first.start();
  await is("live nothing-published");
  await heard(first);
  first.publish(stored(1));
  await sees([0]);
});

test("messages that get lost are fetched by replay, what comes twice or late is put right", async () => {
  const publisher = await startPublisher();
  const { feed, sees, is } = await startFeed(endpointsOf(publisher));
  await is("live nothing-published");
  await heard(publisher);
  for (const delivery of ["sent", "lost", "lost", "sent", "twice", "late", "sent"] as const) {
    publisher.publish(stored(publisher.nextSequence), delivery);
  }
  await sees(range(0, 6));
  await is("live complete");
  expect(feed.describe()).toMatchObject({ gaps: 0, restarts: 0 });
});

test("a gap that no replay can fill, and junk, leave a partial feed that goes on", async () => {
  const publisher = await startPublisher();
  const { feed, sees, is } = await startFeed(endpointsOf(publisher));
  await is("live nothing-published");
  await heard(publisher);
  publisher.publish(stored(1));
  publisher.skipSequences(2);
  publisher.publish(stored(2));
  await sees([0, 3]);
  expect(feed.state).toBe("partial");
  publisher.publishPayload(Uint8Array.of(0xc1));
  publisher.sendFrames([Buffer.from("kv-events"), Buffer.from("junk")]);
  publisher.publish(stored(3));
  await sees([0, 3, 5]);
  await is("partial message-refused");
  expect(feed.describe().refusedMessages).toBe(2);
});

test("a truncated history: the suffix, partial", async () => {
  const publisher = await startPublisher({ bufferSteps: 4 });
  for (const hash of range(0, 9)) publisher.publish(stored(hash));
  const { sees, is } = await startFeed(endpointsOf(publisher));
  await sees(range(6, 9));
  await is("partial history-truncated");
});

test("socket lost and back: stale meanwhile, nothing lost", async () => {
  const publisher = await startPublisher();
  const { feed, sink, sees, is } = await startFeed(endpointsOf(publisher));
  publisher.publish(stored(1));
  await sees([0]);
  await is("live complete");
  await publisher.stop();
  await is("stale socket-lost");
  for (const hash of [2, 3]) publisher.publish(stored(hash));
  await publisher.start();
  await sees([0, 1, 2]);
  await is("live complete");
  expect(sink.states.slice(-3)).toEqual(["stale socket-lost", "replaying reconnected", "live complete"]);
  expect(feed.describe().restarts).toBe(0);
});

test("engine restarted: the old epoch is void, the new one is read from 0", async () => {
  const publisher = await startPublisher();
  const { sink, sees, is } = await startFeed(endpointsOf(publisher));
  for (const hash of [1, 2, 3]) publisher.publish(stored(hash));
  await sees([0, 1, 2]);
  await publisher.stop();
  publisher.restart();
  for (const hash of [11, 12, 13, 14]) publisher.publish(stored(hash));
  await publisher.start();
  await waitFor(() => sink.hashes.join() === "11,12,13,14", { what: "the new epoch" });
  expect(sink.epochs).toEqual(["restarted"]);
  await is("live complete");
});

test("nobody answers at the replay endpoint: what is live is read all the same", async () => {
  const publisher = await startPublisher();
  const silent = await startPublisher();
  const { endpoint: replayEndpoint } = silent;
  await silent.stop();
  publisher.skipSequences(7);
  const { sees, is } = await startFeed({ ...endpointsOf(publisher), replayEndpoint }, { limits: { replayIdleMs: 50 } });
  await is("partial replay-failed");
  await heard(publisher);
  publisher.publish(stored(1));
  await sees([7]);
  await is("partial joined-late");
});

test("a long history arrives whole, through high-water marks and slices", async () => {
  const publisher = await startPublisher();
  const count = 6_000;
  for (const hash of range(1, count)) publisher.publish(stored(hash));
  const { sees, is } = await startFeed(endpointsOf(publisher));
  await is("live complete");
  await sees(range(0, count - 1));
  expect(publisher.replays).toBe(1);
});

test("bound mode: two publishers dial one socket, each feed has its own", async () => {
  const transport = createSharedBinds(createZmqTransport(slices), silentLogger);
  const endpoint = `tcp://127.0.0.1:${await freePort()}`;
  const topics = ["kv@a", "kv@b"];
  const feeds = await Promise.all(
    topics.map((topic) => startFeed({ endpoint, mode: "bind", topic, replayEndpoint: undefined }, { transport })),
  );
  const publishers = await Promise.all(topics.map((topic) => startPublisher({ topic, connect: endpoint })));
  await Promise.all(publishers.map(heard));
  for (const [at, publisher] of publishers.entries()) {
    for (const hash of range(0, 3)) publisher.publish(stored(100 * at + hash));
  }
  for (const [at, { sink, sees, is }] of feeds.entries()) {
    await sees([0, 1, 2, 3]);
    expect(sink.hashes).toEqual(range(100 * at, 100 * at + 3));
    await is("live complete");
  }
  await publishers[1]!.stop();
  await feeds[0]!.is("stale unverified");
  publishers[0]!.publish(stored(4));
  await feeds[0]!.is("live complete");
  await feeds[1]!.is("stale unverified");
});

test.each(["tcp://nonsense", "gopher://127.0.0.1:1"])("endpoint %s: off", async (endpoint) => {
  for (const mode of ["connect", "bind"] as const) {
    const { is } = await startFeed({ endpoint, mode, topic: "", replayEndpoint: undefined });
    await is("off endpoint-unusable");
  }
});

test("a port that is taken: off", async () => {
  const { endpoint } = await startPublisher();
  const { is } = await startFeed({ endpoint, mode: "bind", topic: "", replayEndpoint: undefined });
  await is("off endpoint-unusable");
});

test("a replay endpoint that is malformed is a failed replay, nothing worse", async () => {
  const publisher = await startPublisher();
  const endpoints = { ...endpointsOf(publisher), replayEndpoint: "tcp://nonsense" };
  const { is } = await startFeed(endpoints, { limits: { replayIdleMs: 20 } });
  await is("partial replay-failed");
});

/** A bare socket, and the last byte of each number that it has heard. */
function openRaw(endpoint: string): { readonly numbers: number[]; readonly socket: OpenSocket } {
  const numbers: number[] = [];
  const ignore = (): void => {};
  const observer = {
    ...{ onBacklog: ignore, onUp: ignore, onDown: ignore, onFailed: ignore },
    onMessage: (frames: readonly Uint8Array[]) => numbers.push(frames[1]!.at(-1)!),
  };
  const socket = createZmqTransport(slices).openSubscriber({ endpoint, mode: "connect", topic: "t", observer });
  releases.push(() => socket.close());
  return { numbers, socket };
}

test("a paused socket is not read, a resumed one goes on where it was, a closed one says nothing", async () => {
  const publisher = new Publisher({ linger: 0 });
  releases.push(() => publisher.close());
  await publisher.bind("tcp://127.0.0.1:0");
  const send = (sequence: number, topic = "t") => publisher.send(liveFrames(sequence, storedPayload(0), topic));
  const [one, other] = [openRaw(publisher.lastEndpoint!), openRaw(publisher.lastEndpoint!)];
  // A subscription takes effect a little after the connection: the first message is repeated until both hear it.
  const bothHear = async (): Promise<boolean> => {
    await send(0);
    return one.numbers.length > 0 && other.numbers.length > 0;
  };
  await waitFor(bothHear, { what: "first message" });
  one.socket.pause();
  for (const sequence of range(1, 20)) await send(sequence);
  await send(99, "another topic");
  await waitFor(() => other.numbers.at(-1) === 20, { what: "the last message at the other socket" });
  expect(one.numbers).not.toContain(3);
  one.socket.resume();
  await waitFor(() => one.numbers.at(-1) === 20, { what: "the last message" });
  expect(one.numbers.filter((number) => number > 0)).toEqual(range(1, 20));
  one.socket.close();
  one.socket.resume();
  await send(21);
  await waitFor(() => other.numbers.at(-1) === 21, { what: "one more at the other socket" });
  expect(one.numbers.at(-1)).toBe(20);
});

test("stopped before it is bound or connected: nothing comes, nothing is thrown, the port is free again", async () => {
  const endpoint = `tcp://127.0.0.1:${await freePort()}`;
  for (const mode of ["bind", "connect", "bind"] as const) {
    const { feed, sink } = await startFeed({ endpoint, mode, topic: "", replayEndpoint: undefined });
    await feed.stop();
    expect(sink.states).toEqual(["stale connecting", "off stopped"]);
  }
  const free = async (): Promise<boolean> => {
    const publisher = new Publisher();
    const bound = publisher.bind(endpoint).then(
      () => true,
      () => false,
    );
    const isFree = await bound;
    publisher.close();
    return isFree;
  };
  await waitFor(free, { what: "free port" });
});
