import { writeSequence, zmqContext } from "@espalier/engine-model/kv-events";
import { Dealer, type Observer, type Socket, Subscriber } from "zeromq";
import type { EventTransport, OpenSocket, ReplayOptions, SubscriberOptions } from "./event-transport.ts";
import type { WorkSlices } from "./work-slices.ts";

/**
 * A longer message ends its connection. Far above the decoder's limit, so that a message that is too long is counted
 * and skipped, not received and refused forever.
 */
const maxMessageBytes = 128 * 1024 * 1024;

/** Live messages that a socket keeps while paused. Beyond that the publisher drops messages, which a gap reveals. */
const liveHighWaterMark = 10_000;

/** As many answers as engines keep messages (vLLM's `buffer_steps`): a ROUTER drops what exceeds its queue. */
const replayHighWaterMark = 10_000;

/** Pings detect a peer that vanished, within the sum of both (milliseconds). */
const heartbeat = { heartbeatInterval: 2_000, heartbeatTimeout: 3_000 };

const connection = {
  context: zmqContext,
  linger: 0,
  maxMessageSize: maxMessageBytes,
  reconnectInterval: 100,
  reconnectMaxInterval: 1_000,
};

/** Open files of a subscriber: its socket, two of its monitor, a connection. A bound one has a connection per engine. */
export const subscriberFiles = 4;
/** Open files of a replay: its socket and its connection. */
const replayFiles = 2;

interface ZmqTransport extends EventTransport {
  /** Open files of all sockets. */
  readonly openFiles: number;
}

/**
 * ZeroMQ sockets. Opening one throws when the process may have no more open files.
 *
 * @param slices limits how long sockets are read without a break; share it with the feeds
 * @param maxSubscribers further ones fail
 */
export function createZmqTransport(
  slices: WorkSlices,
  maxSubscribers = (): number => Number.POSITIVE_INFINITY,
): ZmqTransport {
  const files = { subscribers: 0, connections: 0, replays: 0 };
  return {
    get openFiles() {
      return subscriberFiles * files.subscribers + files.connections + replayFiles * files.replays;
    },
    openSubscriber(options) {
      const max = maxSubscribers();
      if (files.subscribers >= max) throw new RangeError(`open files allow ${max} event sockets`);
      const socket = openSubscriber(options, slices, (change) => {
        if (options.mode === "bind") files.connections += change;
      });
      return counted(socket, files, "subscribers");
    },
    openReplay: (options) => counted(openReplay(options, slices), files, "replays"),
  };
}

function counted<Kind extends string>(socket: OpenSocket, files: Record<Kind, number>, kind: Kind): OpenSocket {
  files[kind] += 1;
  let isOpen = true;
  return {
    ...socket,
    close() {
      if (isOpen) files[kind] -= 1;
      isOpen = false;
      socket.close();
    },
  };
}

function openSubscriber(
  { endpoint, mode, topic, observer }: SubscriberOptions,
  slices: WorkSlices,
  onConnections: (change: number) => void,
): OpenSocket {
  const socket = new Subscriber({ ...connection, ...heartbeat, receiveHighWaterMark: liveHighWaterMark });
  const fail = (error: unknown): void => {
    if (!socket.closed) observer.onFailed(error);
  };
  try {
    const watch = { isClosed: () => socket.closed, onUp: () => observer.onUp(), onDown: () => observer.onDown() };
    watchConnections(socket.events, { ...watch, onConnections }).catch(fail);
    socket.subscribe(topic);
  } catch (error) {
    socket.close();
    throw error;
  }
  // A socket cannot be read while it binds.
  const ready = mode === "bind" ? socket.bind(endpoint) : connect(socket, endpoint);
  const onFrames = (frames: readonly Uint8Array[]): void => observer.onMessage(frames);
  const onBacklog = (hasBacklog: boolean): void => observer.onBacklog(hasBacklog);
  return readFrom(socket, { ready, slices, onFrames, onBacklog, onError: fail });
}

function openReplay({ endpoint, start, onFrames }: ReplayOptions, slices: WorkSlices): OpenSocket {
  const socket = new Dealer({ ...connection, receiveHighWaterMark: replayHighWaterMark });
  // An unusable endpoint stays silent, and silence soon counts as a failure.
  const ignore = (): void => {};
  const ready = connect(socket, endpoint).then(() => {
    // The empty frame is what a REQ socket would put before its request; engines ignore requests without it.
    if (!socket.closed) return socket.send([new Uint8Array(0), writeSequence(start)]);
  });
  return readFrom(socket, { ready, slices, onFrames, onBacklog: ignore, onError: ignore });
}

/** Starts connecting; fails when the endpoint is malformed. */
async function connect(socket: Socket & { connect(endpoint: string): void }, endpoint: string): Promise<void> {
  socket.connect(endpoint);
}

interface Watch {
  isClosed(): boolean;
  onUp(): void;
  onDown(): void;
  /** @param change of the number of connections; all are gone when the socket is closed */
  onConnections(change: number): void;
}

/**
 * Reports connections. A bound socket may have several: it reports the loss of one, and then whether others are left.
 */
async function watchConnections(events: Observer, { isClosed, onUp, onDown, onConnections }: Watch): Promise<void> {
  let connections = 0;
  try {
    for await (const event of events) {
      if (isClosed() || event.type === "end") return;
      if (event.type === "handshake") {
        connections += 1;
        onConnections(1);
        onUp();
      } else if (event.type === "disconnect" && connections > 0) {
        connections -= 1;
        onConnections(-1);
        onDown();
        if (connections > 0) onUp();
      }
    }
  } finally {
    onConnections(-connections);
  }
}

interface Reading {
  readonly ready: Promise<void>;
  readonly slices: WorkSlices;
  readonly onFrames: (frames: readonly Uint8Array[]) => void;
  readonly onBacklog: (hasBacklog: boolean) => void;
  readonly onError: (error: unknown) => void;
}

/** Reads messages unless it is paused. */
function readFrom(socket: Subscriber | Dealer, reading: Reading): OpenSocket {
  const { ready, slices, onFrames, onBacklog, onError } = reading;
  let hasBacklog = false;
  let resumed: Promise<void> | undefined;
  let release = (): void => {};
  const read = async (): Promise<void> => {
    await ready;
    while (!socket.closed) {
      // Buffered messages arrive without a break: the event loop would not turn for hundreds of them.
      const wait = resumed ?? slices.waitForTurn();
      if (wait) await wait;
      else {
        const frames = await socket.receive();
        if (!socket.closed) onFrames(frames);
        if (socket.closed || socket.readable === hasBacklog) continue;
        hasBacklog = !hasBacklog;
        onBacklog(hasBacklog);
      }
    }
  };
  const resume = (): void => {
    release();
    resumed = undefined;
  };
  // Closing ends the wait for a message with an error, which is expected.
  read().catch((error: unknown) => socket.closed || onError(error));
  return {
    pause() {
      resumed ??= new Promise((resolve) => {
        release = resolve;
      });
    },
    resume,
    close() {
      resume();
      socket.close();
    },
  };
}
