import { createEventDecoder, writeSequence } from "@espalier/engine-model/kv-events";
import {
  createRecordingLogger,
  createVirtualTime,
  type LogLine,
  type SeriesMeter,
  type VirtualTime,
} from "@espalier/testing";
import type { FeedLimits } from "../../src/events/feed-limits.ts";
import { createKvFeed, type FeedEndpoints, type KvFeed } from "../../src/events/kv-feed.ts";
import { createReplayGate, type ReplayGate } from "../../src/events/replay-run.ts";
import { createWorkSlices, type WorkSlices } from "../../src/events/work-slices.ts";
import {
  allOnes,
  createFakeTransport,
  empty,
  type FakeReplay,
  type FakeSubscriber,
  type FakeTransport,
  liveFrames,
  replayFrames,
} from "./fake-transport.ts";
import { createFeedMeter } from "./feed-meter.ts";
import { storedPayload } from "./messages.ts";
import { createRecordingSink, type RecordingSink } from "./recording-sink.ts";

/** How long the fake engine takes to answer a replay request. */
const answerMs = 1;

/** The engine's side: what it published in its present epoch, and how it answers. */
export interface FakeEngine {
  readonly history: Uint8Array[];
  /** How many messages back it can replay. */
  bufferSteps: number;
  form: "topic" | "plain";
  /** Answers a replay request; replace it for engines that misbehave. */
  answer: (replay: FakeReplay) => void;
  /** Publishes `count` messages that arrive. */
  publish(count?: number): void;
  /** Publishes `count` messages that get lost on their way. */
  publishUnheard(count?: number): void;
  /** Sends message `sequence` (again). */
  send(sequence: number): void;
  /** Becomes another process. */
  restart(): void;
  /** The usual answer: the history from the number asked for, as far as it is kept, and the end marker. */
  answerInFull(replay: FakeReplay): void;
  answerOne(replay: FakeReplay, sequence: number): void;
  answerEnd(replay: FakeReplay): void;
}

export interface FeedHarness {
  readonly feed: KvFeed;
  readonly time: VirtualTime;
  readonly transport: FakeTransport;
  readonly engine: FakeEngine;
  readonly sink: RecordingSink;
  readonly meter: SeriesMeter;
  readonly lines: readonly LogLine[];
  readonly socket: FakeSubscriber;
  /** `STATE REASON` at present. */
  readonly state: string;
  /** Connects and lets what follows happen. */
  connect(): void;
  disconnect(): void;
  /** The starts of all replay requests so far. */
  readonly asked: readonly number[];
}

export interface HarnessOptions {
  /** Whether there is a replay endpoint. */
  readonly replay?: boolean;
  readonly limits?: Partial<FeedLimits>;
  readonly slices?: WorkSlices;
  readonly gate?: ReplayGate;
  readonly time?: VirtualTime;
}

/** A started feed under virtual time, not connected yet. */
export async function startFeed(options: HarnessOptions = {}): Promise<FeedHarness> {
  const time = options.time ?? createVirtualTime();
  const { clock, scheduler } = time;
  const transport = createFakeTransport();
  const engine = createFakeEngine(transport, time);
  const sink = createRecordingSink();
  const meter = createFeedMeter();
  const logger = createRecordingLogger();
  const replayEndpoint = options.replay === false ? undefined : "tcp://engine:5657";
  const endpoints: FeedEndpoints = { endpoint: "tcp://engine:5557", mode: "connect", topic: "", replayEndpoint };
  const feed = createKvFeed({
    key: "engine-a/0",
    endpoints,
    sink,
    decoder: createEventDecoder(),
    transport,
    slices: options.slices ?? createWorkSlices({ clock, scheduler }),
    replayGate: options.gate ?? createReplayGate(),
    clock,
    scheduler,
    // No jitter.
    random: { float: () => 1, integer: () => 0 },
    logger,
    meter,
    limits: options.limits ?? {},
  });
  await feed.start();
  const socket = transport.subscribers[0]!;
  return {
    ...{ feed, time, transport, engine, sink, meter, lines: logger.lines, socket },
    get state() {
      return `${feed.state} ${feed.reason}`;
    },
    get asked() {
      return transport.replays.map(({ start }) => start);
    },
    connect() {
      socket.tell.onUp();
      time.advance(10 * answerMs);
    },
    disconnect: () => socket.tell.onDown(),
  };
}

/** A started feed that is connected. */
export async function connectedFeed(options: HarnessOptions = {}): Promise<FeedHarness> {
  const feed = await startFeed(options);
  feed.connect();
  return feed;
}

function createFakeEngine(transport: FakeTransport, time: VirtualTime): FakeEngine {
  let epoch = 1;
  const make = (): void => {
    // Hashes differ between epochs; timestamps go up by more than the clock does, as no two messages are made at once.
    const hash = epoch * 1_000_000 + engine.history.length;
    engine.history.push(storedPayload(hash, time.clock.wallMs() / 1_000 + epoch + engine.history.length * 1e-6));
  };
  const engine: FakeEngine = {
    history: [],
    bufferSteps: 10_000,
    form: "topic",
    answer: (replay) => engine.answerInFull(replay),
    publish(count = 1) {
      for (let index = 0; index < count; index++) {
        make();
        engine.send(engine.history.length - 1);
      }
    },
    publishUnheard(count = 1) {
      for (let index = 0; index < count; index++) make();
    },
    send(sequence) {
      transport.subscribers[0]!.tell.onMessage(liveFrames(sequence, engine.history[sequence]!));
    },
    restart() {
      epoch += 1;
      engine.history.length = 0;
    },
    answerInFull(replay) {
      const oldest = Math.max(0, engine.history.length - engine.bufferSteps);
      for (let at = Math.max(replay.start, oldest); at < engine.history.length; at++) engine.answerOne(replay, at);
      engine.answerEnd(replay);
    },
    answerOne(replay, sequence) {
      replay.answer(replayFrames(engine.form, writeSequence(sequence), engine.history[sequence]!));
    },
    answerEnd(replay) {
      replay.answer(replayFrames(engine.form, allOnes, empty));
    },
  };
  transport.onReplay = (replay) => void time.scheduler.after(answerMs, () => engine.answer(replay));
  return engine;
}

/** `[from, from + 1, ..., to]`. */
export const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at);
