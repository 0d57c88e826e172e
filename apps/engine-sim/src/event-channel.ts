import type { Cancel, Clock, Logger, Scheduler } from "@espalier/core";
import {
  createKvEventPublisher,
  type Delivery,
  type EventDialect,
  encodeEventMessage,
  type WireEvent,
} from "@espalier/engine-model/kv-events";
import type { EventFault } from "./event-faults.ts";
import { createMessageFaults, type MessageFault } from "./event-faults.ts";
import type { ResolvedKvEvents } from "./options.ts";

/** Addresses and state of a channel. */
export interface EventChannelDescription {
  readonly dialect: EventDialect;
  readonly topic: string;
  readonly port: number;
  /** Null without replay. */
  readonly replayPort: number | null;
  readonly bufferSteps: number;
  /** Sequence number of the next message. */
  readonly nextSequence: number;
  readonly subscriptions: number;
  /** Replays answered since the socket was opened last. */
  readonly replays: number;
  readonly replaySilent: boolean;
  readonly faults: readonly MessageFault[];
}

/** Publishes the KV events of one simulated engine, with faults on demand. */
export type EventChannel = ReturnType<typeof createEventChannel>;

interface EventChannelOptions extends EventStreamOptions {
  readonly scheduler: Scheduler;
  /** Data-parallel rank that the messages name. */
  readonly rank: number;
}

/** A byte that is never valid in msgpack. */
const junk = Uint8Array.of(0xc1);

export function createEventChannel(options: EventChannelOptions) {
  const { dialect, topic, bufferSteps, clock, scheduler, rank, logger } = options;
  const stream = createEventStream(options);
  const faults = createMessageFaults(scheduler);
  let replaySilent = false;
  let endSilence: Cancel | undefined;
  let work: Promise<void> = Promise.resolve();

  /** Serializes opening and closing of sockets. */
  const queued = (task: () => Promise<void>): Promise<void> => {
    const done = work.then(task);
    work = done.catch(() => {});
    return done;
  };
  const setReplaySilent = (silent: boolean): Promise<void> => {
    endSilence?.();
    endSilence = undefined;
    return queued(async () => {
      if (silent === replaySilent) return;
      replaySilent = silent;
      await (silent ? stream.closeReplay() : stream.openReplay());
    });
  };
  const endReplaySilence = (): void => {
    setReplaySilent(false).catch((error: unknown) => logger.error("replay socket not opened", { error }));
  };
  const publishPayload = (payload: Uint8Array): void => stream.publish(payload, faults.take());

  return {
    start: stream.start,
    stop(): Promise<void> {
      endSilence?.();
      faults.clear();
      return queued(stream.stop);
    },
    /** Ports are known once the channel is started. */
    describe(): EventChannelDescription {
      const { port, replayPort = null, nextSequence, subscriptions, replays } = stream;
      const place = { dialect, topic, port, replayPort, bufferSteps };
      return { ...place, nextSequence, subscriptions, replays, replaySilent, faults: faults.list() };
    },
    /** Publishes the events of one step as one message. */
    publish: (events: readonly WireEvent[]): void =>
      publishPayload(encodeEventMessage(events, dialect, { timestampS: clock.wallMs() / 1_000, rank })),
    /**
     * The engine restarts: numbers from 0, an empty replay, all connections broken. Resolves when the sockets are open again.
     */
    restart(): Promise<void> {
      stream.beginEpoch();
      return queued(() => stream.reopen({ replay: !replaySilent }));
    },
    /**
     * Injects a fault; resolves when it is active.
     *
     * @throws ApiError 400 when too many faults are active
     */
    async inject(fault: EventFault): Promise<void> {
      if (fault.kind === "gap") stream.skip(fault.count);
      else if (fault.kind === "replay-truncated") stream.forgetAllBut(fault.keep);
      else if (fault.kind === "junk") {
        for (let index = 0; index < fault.count; index++) publishPayload(junk);
      } else if (fault.kind === "replay-silent") {
        await setReplaySilent(true);
        if (fault.delayMs !== undefined) endSilence = scheduler.after(fault.delayMs, endReplaySilence);
      } else faults.add(fault);
    },
    /** Clears all faults. */
    clearFaults(): Promise<void> {
      faults.clear();
      return setReplaySilent(false);
    },
  };
}

interface EventStreamOptions extends ResolvedKvEvents {
  /** Name among the streams of this process. */
  readonly name: string;
  readonly replayPort: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Numbered messages of one engine, sent to subscribers and kept for replay. Ports are known once it is started. Live
 * messages and replay are two publishers with the same numbers, so that faults of the replay do not affect live messages.
 */
function createEventStream(options: EventStreamOptions) {
  const { name, dialect, topic, host, port, replay, replayPort, bufferSteps, clock, logger } = options;
  const common = { host, topic, dialect, clock, logger };
  const live = createKvEventPublisher({ ...common, port, bufferSteps: 1 });
  // Its live socket dials an address that nothing binds.
  const history = replay
    ? createKvEventPublisher({ ...common, connect: `inproc://${name}-history`, replayPort, bufferSteps })
    : undefined;
  const newest = createMessageHistory(replay ? bufferSteps : 1);
  return {
    get port() {
      return portOf(live.endpoint);
    },
    /** Undefined without replay. */
    get replayPort() {
      return history?.replayEndpoint === undefined ? undefined : portOf(history.replayEndpoint);
    },
    get nextSequence() {
      return live.nextSequence;
    },
    get subscriptions() {
      return live.subscriptions;
    },
    /** Replays answered since the socket was opened last. */
    get replays() {
      return history?.replays ?? 0;
    },
    async start(): Promise<void> {
      await live.start();
      await history?.start();
    },
    async stop(): Promise<void> {
      await Promise.all([live.stop(), history?.stop()]);
    },
    publish(payload: Uint8Array, delivery: Delivery): void {
      const sequence = live.publishPayload(payload, delivery);
      history?.publishPayload(payload, "lost");
      newest.add({ sequence, payload });
    },
    /** Skips sequence numbers. */
    skip(count: number): void {
      live.skipSequences(count);
      history?.skipSequences(count);
    },
    /** Drops all but the newest `count` messages from the replay. */
    forgetAllBut(count: number): void {
      if (!history) return;
      const kept = newest.newest(count);
      newest.clear();
      history.restart();
      for (const message of kept) {
        history.skipSequences(message.sequence - history.nextSequence);
        history.publishPayload(message.payload, "lost");
        newest.add(message);
      }
      history.skipSequences(live.nextSequence - history.nextSequence);
    },
    /** Restarts the numbers at 0, and empties the replay. */
    beginEpoch(): void {
      live.restart();
      history?.restart();
      newest.clear();
    },
    closeReplay: async () => history?.stop(),
    openReplay: async () => history?.reconnect(),
    /** Breaks every connection and listens on the same ports again. */
    async reopen(which: { readonly replay: boolean }): Promise<void> {
      await Promise.all([live.reconnect(), which.replay ? history?.reconnect() : undefined]);
    },
  };
}

const portOf = (endpoint: string): number => Number(endpoint.slice(endpoint.lastIndexOf(":") + 1));

/** A message that was published. */
interface PublishedMessage {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

/** The newest messages of one epoch, oldest first. @param capacity messages kept; the oldest is dropped */
export function createMessageHistory(capacity: number) {
  let messages: PublishedMessage[] = [];
  return {
    add(message: PublishedMessage): void {
      messages.push(message);
      // Trimmed rarely, so that adding stays O(1).
      if (messages.length >= 2 * capacity) messages = messages.slice(-capacity);
    },
    /** The last `count`, or all kept ones. */
    newest: (count: number): readonly PublishedMessage[] =>
      messages.slice(messages.length - Math.min(count, capacity, messages.length)),
    clear(): void {
      messages = [];
    },
  };
}
