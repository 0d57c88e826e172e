import type { Clock, Logger, Scheduler, Startable } from "@espalier/common";
import { type Logger, systemScheduler } from "@espalier/common";
import { XPublisher } from "zeromq";
import { type EventDialect, encodeEventMessage, replayCarriesTopic, type WireEvent } from "../codec/encode-events.ts";
import { writeSequence } from "../codec/replay-frames.ts";
import { type BatchBuffer, createBatchBuffer, type ReplayResponder, startReplayResponder } from "./replay-responder.ts";

export interface KvEventPublisherOptions {
  /** The address to bind; "127.0.0.1" by default. */
  readonly host?: string;
  /** The port to bind; 0, the default, selects a free one. */
  readonly port?: number;
  /** An endpoint, bound by a subscriber, to dial instead of binding one. */
  readonly connect?: string;
  /** The port of the replay socket, bound on `host`; 0 selects a free one. Without it there is no replay. */
  readonly replayPort?: number;
  /** First frame of every message. */
  readonly topic: string;
  readonly dialect: EventDialect;
  /** Data-parallel rank; undefined is sent as nil. */
  readonly rank?: number;
  /** See `EncodeOptions`. */
  readonly hashes?: "integer" | "bytes";
  readonly envelope?: "array" | "map";
  /** Batches kept for replay; 10,000 by default, as in vLLM. */
  readonly bufferSteps?: number;
  /** Messages kept for a slow subscriber; 100,000 by default, as in vLLM. */
  readonly highWaterMark?: number;
  readonly clock: Clock;
  /** Paces the retries of `reconnect`; the system's by default. */
  readonly scheduler?: Scheduler;
  readonly logger: Logger;
}

const defaultBufferSteps = 10_000;

/**
 * How a message leaves, to test readers: `lost` is numbered and can be replayed but is not sent; `twice` is sent twice;
 * `late` is sent after the next one.
 */
export type Delivery = "sent" | "lost" | "twice" | "late";

/** Publishes KV events as an engine does. */
export interface KvEventPublisher extends Startable {
  /** The endpoint for subscribers, with the bound port; when it dials, the dialled endpoint. Known after `start`. */
  readonly endpoint: string;
  /** The replay endpoint; undefined without a replay socket. Known after `start`. */
  readonly replayEndpoint: string | undefined;
  /** Current number of subscriptions. */
  readonly subscriptions: number;
  /** Messages dropped at the high-water mark since the sockets were last opened. */
  readonly dropped: number;
  /** Replays answered since the sockets were last opened. */
  readonly replays: number;
  /** The sequence number of the next message. */
  readonly nextSequence: number;
  /**
   * Publishes the events of one step. An empty step is not published.
   *
   * @returns the sequence number of the message; undefined for an empty step
   */
  publish(events: readonly WireEvent[], delivery?: Delivery): number | undefined;
  /** Publishes a payload of any bytes. @returns its sequence number */
  publishPayload(payload: Uint8Array, delivery?: Delivery): number;
  /** Skips sequence numbers: a gap that no replay can fill. */
  skipSequences(count: number): void;
  /** Sends frames unchanged, numbered or not. */
  sendFrames(frames: readonly Uint8Array[]): void;
  /** Begins a new epoch like a restarted process: numbers begin at 0 and nothing can be replayed. */
  restart(): void;
  /**
   * Closes the sockets and opens them again on the same ports; subscribers lose their connection meanwhile.
   *
   * @throws Error when a port is not free again within two seconds
   */
  reconnect(): Promise<void>;
}

/** @throws RangeError when a bound, port or rank is out of range */
export function createKvEventPublisher(options: KvEventPublisherOptions): KvEventPublisher {
  checkPublisherOptions(options);
  const { clock, dialect, hashes, envelope, rank } = options;
  const topic = new TextEncoder().encode(options.topic);
  const buffer = createBatchBuffer(options.bufferSteps ?? defaultBufferSteps);
  const sockets = createPublisherSockets(options, { topic, buffer });
  let nextSequence = 0;
  let late: readonly Uint8Array[] | undefined;

  const deliver = (frames: readonly Uint8Array[], delivery: Delivery): void => {
    const delayed = late;
    late = delivery === "late" ? frames : undefined;
    if (delivery === "sent" || delivery === "twice") sockets.send(frames);
    if (delivery === "twice") sockets.send(frames);
    if (delayed) sockets.send(delayed);
  };
  const publishPayload = (payload: Uint8Array, delivery: Delivery = "sent"): number => {
    const sequence = nextSequence++;
    buffer.add({ sequence, payload });
    deliver([topic, writeSequence(sequence), payload], delivery);
    return sequence;
  };

  return {
    get endpoint() {
      return sockets.endpoint;
    },
    get replayEndpoint() {
      return sockets.replayEndpoint;
    },
    get subscriptions() {
      return sockets.subscriptions;
    },
    get dropped() {
      return sockets.dropped;
    },
    get replays() {
      return sockets.replays;
    },
    get nextSequence() {
      return nextSequence;
    },
    start: sockets.open,
    stop: sockets.close,
    publish(events, delivery) {
      if (events.length === 0) return undefined;
      const timestampS = clock.wallMs() / 1_000;
      const form = { timestampS, rank, ...(hashes && { hashes }), ...(envelope && { envelope }) };
      return publishPayload(encodeEventMessage(events, dialect, form), delivery);
    },
    publishPayload,
    skipSequences(count) {
      nextSequence += count;
    },
    sendFrames: sockets.send,
    restart() {
      nextSequence = 0;
      late = undefined;
      buffer.clear();
    },
    reconnect: sockets.reopen,
  };
}

/** @throws RangeError when a bound is not a whole number from 1 to a million, or a port or rank is invalid */
function checkPublisherOptions(options: KvEventPublisherOptions): void {
  const { bufferSteps = 1, highWaterMark = 1, port = 0, replayPort = 0, rank = 0 } = options;
  for (const [name, value, least, most] of [
    ["bufferSteps", bufferSteps, 1, 1_000_000],
    ["highWaterMark", highWaterMark, 1, 1_000_000],
    ["port", port, 0, 65_535],
    ["replayPort", replayPort, 0, 65_535],
    ["rank", rank, 0, 65_535],
  ] as const) {
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new RangeError(`${name} must be a whole number from ${least} to ${most}, not ${value}`);
    }
  }
}

/** A closed socket keeps its port until a thread of the library releases it, usually within a millisecond. */
const reopenDelayMs = 5;
const maxReopenAttempts = 400;
const defaultHighWaterMark = 100_000;

/** The sockets of a publisher. A closed one sends and counts nothing. */
interface PublisherSockets {
  /** Includes the bound port once open. */
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly subscriptions: number;
  readonly dropped: number;
  readonly replays: number;
  /**
   * Opens the sockets, on their former ports if they had any.
   *
   * @throws Error when a port is taken; for a former port, when it is not free again within two seconds
   */
  open(): Promise<void>;
  close(): Promise<void>;
  /** Closes and opens again. @throws Error as `open` */
  reopen(): Promise<void>;
  send(frames: readonly Uint8Array[]): void;
}

function createPublisherSockets(
  options: KvEventPublisherOptions,
  { topic, buffer }: { readonly topic: Uint8Array; readonly buffer: BatchBuffer },
): PublisherSockets {
  const { dialect, highWaterMark = defaultHighWaterMark, logger, scheduler = systemScheduler } = options;
  const host = options.host ?? "127.0.0.1";
  let endpoint = options.connect ?? tcpEndpoint(host, options.port ?? 0);
  let replayEndpoint = options.replayPort === undefined ? undefined : tcpEndpoint(host, options.replayPort);
  let events: EventSocket | undefined;
  let responder: ReplayResponder | undefined;

  const bind = async (): Promise<void> => {
    const mode = options.connect === undefined ? "bind" : "connect";
    events = await openEventSocket({ endpoint, mode, highWaterMark, logger });
    endpoint = events.endpoint;
    if (replayEndpoint === undefined) return;
    const carried = replayCarriesTopic(dialect) ? topic : undefined;
    responder = await startReplayResponder({ endpoint: replayEndpoint, topic: carried, buffer, highWaterMark, logger });
    replayEndpoint = responder.endpoint;
  };
  const close = async (): Promise<void> => {
    await Promise.all([events?.close(), responder?.close()]);
    events = undefined;
    responder = undefined;
  };
  /** Whether the ports are former ones, which this process may keep for a moment. */
  let isAgain = false;
  const open = async (): Promise<void> => {
    for (let attempt = 1; ; attempt++) {
      try {
        await bind();
        isAgain = true;
        return;
      } catch (error) {
        await close();
        if (!isAgain || attempt === maxReopenAttempts) throw error;
      }
      await new Promise<void>((resolve) => {
        scheduler.after(reopenDelayMs, resolve);
      });
    }
  };
  const reopen = async (): Promise<void> => {
    await close();
    await open();
  };
  return {
    get endpoint() {
      return endpoint;
    },
    get replayEndpoint() {
      return replayEndpoint;
    },
    get subscriptions() {
      return events?.subscriptions ?? 0;
    },
    get dropped() {
      return events?.dropped ?? 0;
    },
    get replays() {
      return responder?.answered ?? 0;
    },
    open,
    close,
    reopen,
    send: (frames) => events?.send(frames),
  };
}

const tcpEndpoint = (host: string, port: number): string => `tcp://${host}:${port}`;

interface EventSocketOptions {
  readonly endpoint: string;
  /** Bind the endpoint, or dial a subscriber that has bound it. */
  readonly mode: "bind" | "connect";
  /** Most messages kept for a slow subscriber, which loses further ones without notice. */
  readonly highWaterMark: number;
  readonly logger: Logger;
}

/** The socket that sends events. */
interface EventSocket {
  /** The bound or dialled endpoint. */
  readonly endpoint: string;
  /** Current number of subscriptions. */
  readonly subscriptions: number;
  /** Messages dropped because more than the high-water mark waited for the socket. */
  readonly dropped: number;
  /** Queues frames after those sent before. Never waits for slow subscribers. */
  send(frames: readonly Uint8Array[]): void;
  close(): Promise<void>;
}

/** The first byte of a subscription; the topic follows. */
const subscribeCode = 1;
const unsubscribeCode = 0;

/**
 * Opens a socket that behaves on the wire like an engine's PUB socket but reports subscriptions, so that a test can
 * wait for one.
 *
 * @throws Error when the endpoint cannot be bound
 */
async function openEventSocket(options: EventSocketOptions): Promise<EventSocket> {
  const { mode, highWaterMark, logger } = options;
  const socket = new XPublisher({ linger: 0, sendHighWaterMark: highWaterMark, verbosity: "allSubsUnsubs" });
  try {
    if (mode === "bind") await socket.bind(options.endpoint);
    else socket.connect(options.endpoint);
  } catch (error) {
    socket.close();
    throw error;
  }
  const endpoint = (mode === "bind" && socket.lastEndpoint) || options.endpoint;
  let subscriptions = 0;
  const listen = async (): Promise<void> => {
    try {
      for await (const [frame] of socket) {
        if (frame?.[0] === subscribeCode) subscriptions += 1;
        else if (frame?.[0] === unsubscribeCode) subscriptions -= 1;
      }
    } catch (error) {
      if (!socket.closed) logger.error("the socket of a KV event publisher failed", { error });
    }
  };
  const listening = listen();
  const outbox = createOutbox(socket, options);
  return {
    endpoint,
    get subscriptions() {
      return subscriptions;
    },
    get dropped() {
      return outbox.dropped;
    },
    send: outbox.send,
    async close() {
      socket.close();
      await listening;
    },
  };
}

/**
 * Sends one message at a time. The library accepts a message only after the one before has left, which after some
 * hundreds in a row takes a turn of the event loop.
 */
function createOutbox(
  socket: XPublisher,
  { highWaterMark, logger }: EventSocketOptions,
): Pick<EventSocket, "send" | "dropped"> {
  let waiting: (readonly Uint8Array[])[] = [];
  let unsent = 0;
  let sending = false;
  let dropped = 0;
  const drain = async (): Promise<void> => {
    sending = true;
    try {
      while (waiting.length > 0) {
        const batch = waiting;
        waiting = [];
        for (const frames of batch) {
          await socket.send([...frames]);
          unsent -= 1;
        }
      }
    } catch (error) {
      if (!socket.closed) logger.warn("KV event messages were not sent", { error });
    } finally {
      sending = false;
    }
  };
  return {
    get dropped() {
      return dropped;
    },
    send(frames) {
      if (socket.closed) return;
      if (unsent >= highWaterMark) {
        dropped += 1;
        return;
      }
      waiting.push(frames);
      unsent += 1;
      if (!sending) void drain();
    },
  };
}
