import { type Logger, systemScheduler } from "@espalier/common";
import { XPublisher } from "zeromq";
import { replayCarriesTopic } from "../codec/encode-events.ts";
import type { KvEventPublisherOptions } from "./kv-event-publisher.ts";
import { type BatchBuffer, type ReplayResponder, startReplayResponder } from "./replay-responder.ts";

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

export function createPublisherSockets(
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
