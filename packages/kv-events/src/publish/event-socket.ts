import type { Logger } from "@espalier/common";
import { XPublisher } from "zeromq";

export interface EventSocketOptions {
  readonly endpoint: string;
  /** Bind the endpoint, or dial a subscriber that has bound it. */
  readonly mode: "bind" | "connect";
  /** Messages kept for a subscriber that is slow; beyond, it loses them without notice. */
  readonly highWaterMark: number;
  readonly logger: Logger;
}

/** The socket that events leave through. */
export interface EventSocket {
  /** Where it is bound, or what it dials. */
  readonly endpoint: string;
  /** Subscriptions in force. */
  readonly subscriptions: number;
  /** Messages dropped because more than the high-water mark waited to be handed to the socket. */
  readonly dropped: number;
  /** Sends after all that was sent before; nobody waits for slow subscribers. */
  send(frames: readonly Uint8Array[]): void;
  close(): Promise<void>;
}

/** The first byte of what a subscriber sends; the topic follows. */
const subscribeCode = 1;
const unsubscribeCode = 0;

/**
 * Opens a socket that is on the wire what an engine's PUB socket is, but hears of subscriptions, so that a test can wait
 * for one instead of guessing how long it takes.
 *
 * @throws Error when the endpoint cannot be bound
 */
export async function openEventSocket(options: EventSocketOptions): Promise<EventSocket> {
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
 * Sends one message after the other. The library accepts a message only when the one before is gone, which after some
 * hundreds in a row takes until the event loop turns.
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
