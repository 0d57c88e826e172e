import { type Clock, silentLogger, systemScheduler } from "@espalier/core";
import { createEventDecoder, createKvEventPublisher } from "@espalier/engine-model/kv-events";
import { createWorkSlices, createZmqTransport } from "@espalier/shared-tree/events";
import type { Figures } from "../support/median-spread.ts";
import { decodeWithLibrary } from "./events-baseline.ts";
import { ingestMs } from "./events-ingest.ts";
import type { EventTraffic, FeedMessage } from "./events-traffic.ts";

export interface EventsRunOptions {
  readonly traffic: EventTraffic;
  /** Number of decoding passes; the first few warm up and do not count. */
  readonly passes: number;
  readonly clock: Clock;
}

/** Results of one run. */
export interface EventsRun {
  readonly espalier: Figures;
  readonly library: Figures;
}

/** Passes during which the compiler is still working. */
const warmUpPasses = 2;
/** Maximum messages in the socket: far below any high-water mark, so that none is lost. */
const windowMessages = 1_000;
const connectDeadlineMs = 5_000;

/** @throws Error when a message is not decoded whole, or the socket stays silent */
export async function runEventsOnce({ traffic, passes, clock }: EventsRunOptions): Promise<EventsRun> {
  const decoder = createEventDecoder();
  const decode = (messages: readonly FeedMessage[]): void => {
    for (const { payload } of messages) {
      const { refused, unknownEvents, malformedEvents } = decoder.decode(payload);
      if (refused !== undefined || unknownEvents + malformedEvents > 0) throw new Error(`not decoded: ${refused}`);
    }
  };
  const timed = (work: () => unknown) => (): number => {
    const startMs = clock.nowMs();
    work();
    return clock.nowMs() - startMs;
  };
  const decodeMs = medianMs(
    passes,
    timed(() => decode(traffic.steady)),
  );
  const libraryMs = medianMs(
    passes,
    timed(() => decodeWithLibrary(traffic.steady)),
  );
  const wholeMs = medianMs(passes, () => ingestMs(traffic, clock));
  const socketMs = await throughSocketMs(traffic.steady, clock, decode);
  const perSecond = (amount: number, ms: number): number => (amount / ms) * 1_000;
  return {
    espalier: {
      block_ops_per_s: perSecond(traffic.blockOps, wholeMs),
      decode_block_ops_per_s: perSecond(traffic.blockOps, decodeMs),
      socket_block_ops_per_s: perSecond(traffic.blockOps, socketMs),
      bytes_per_s: perSecond(traffic.bytes, decodeMs),
      messages_per_s: perSecond(traffic.steady.length, decodeMs),
    },
    library: {
      decode_block_ops_per_s: perSecond(traffic.blockOps, libraryMs),
      bytes_per_s: perSecond(traffic.bytes, libraryMs),
      messages_per_s: perSecond(traffic.steady.length, libraryMs),
    },
  };
}

/** @param pass returns the milliseconds that it took */
function medianMs(passes: number, pass: () => number): number {
  const times: number[] = [];
  for (let index = 0; index < warmUpPasses + passes; index++) {
    const tookMs = pass();
    if (index >= warmUpPasses) times.push(tookMs);
  }
  return times.sort((one, other) => one - other)[times.length >> 1]!;
}

/** Publishes and reads over loopback in one process: the time includes the publisher's part. */
async function throughSocketMs(
  messages: readonly FeedMessage[],
  clock: Clock,
  decode: (messages: readonly FeedMessage[]) => void,
): Promise<number> {
  const publisher = createKvEventPublisher({
    topic: "bench",
    dialect: "vllm-0.32",
    clock,
    scheduler: systemScheduler,
    logger: silentLogger,
  });
  await publisher.start();
  let received = 0;
  let wanted = 0;
  let wake = (): void => {};
  let fail = (_error: unknown): void => {};
  const onMessage = (frames: readonly Uint8Array[]): void => {
    decode([{ feed: 0, payload: frames[2]! }]);
    received += 1;
    if (received === wanted) wake();
  };
  const observer = {
    onMessage,
    onBacklog: () => {},
    onUp: () => {},
    onDown: () => {},
    onFailed: (error: unknown) => fail(error),
  };
  const transport = createZmqTransport(createWorkSlices({ clock, scheduler: systemScheduler }));
  const { endpoint } = publisher;
  const subscriber = transport.openSubscriber({ endpoint, mode: "connect", topic: "", observer });
  try {
    await subscribed(() => publisher.subscriptions > 0, clock);
    const startMs = clock.nowMs();
    for (let from = 0; from < messages.length; from += windowMessages) {
      const window = messages.slice(from, from + windowMessages);
      const all = new Promise<void>((resolve, reject) => {
        wake = resolve;
        fail = reject;
      });
      wanted = received + window.length;
      for (const { payload } of window) publisher.publishPayload(payload);
      await all;
    }
    return clock.nowMs() - startMs;
  } finally {
    subscriber.close();
    await publisher.stop();
  }
}

/** @throws Error when there is no subscriber in time */
async function subscribed(isDone: () => boolean, clock: Clock): Promise<void> {
  const deadlineMs = clock.nowMs() + connectDeadlineMs;
  while (!isDone()) {
    if (clock.nowMs() > deadlineMs) throw new Error("no subscriber to the events");
    await new Promise<void>((resolve) => {
      systemScheduler.after(1, resolve);
    });
  }
}
