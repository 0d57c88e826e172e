import { type Clock, type Logger, type Scheduler, type Startable, systemScheduler } from "@espalier/core";
import { XPublisher } from "zeromq";
import { type EventDialect, encodeEventMessage, replayCarriesTopic, type WireEvent } from "../codec/encode-events.ts";
import { writeSequence } from "../codec/replay-frames.ts";
import { zmqContext } from "../zmq-context.ts";
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

/** A closed socket keeps its port until a thread of the library releases it, usually within a millisecond. */
const reopenDelayMs = 5;
/** Attempts to bind a port again. */
const maxReopenAttempts = 400;
const defaultHighWaterMark = 100_000;
const defaultBufferSteps = 10_000;

/**
 * How a message leaves, to test readers: `lost` is numbered and can be replayed but is not sent; `twice` is sent twice;
 * `late` is sent after the next one.
 */
export type Delivery = "sent" | "lost" | "twice" | "late";

/**
 * Publishes KV events as an engine does.
 *
 * @throws RangeError when a bound, port or rank is out of range
 */
export function createKvEventPublisher(options: KvEventPublisherOptions): KvEventPublisher {
  checkPublisherOptions(options);
  return new KvEventPublisher(options);
}

/** See `createKvEventPublisher`. Without open sockets it sends and counts nothing. */
export class KvEventPublisher implements Startable {
  /** The endpoint for subscribers, with the bound port; when it dials, the dialled endpoint. Known after `start`. */
  endpoint: string;
  /** The replay endpoint; undefined without a replay socket. Known after `start`. */
  replayEndpoint: string | undefined;
  /** The sequence number of the next message. */
  nextSequence = 0;
  readonly #options: KvEventPublisherOptions;
  readonly #topic: Uint8Array;
  readonly #buffer: BatchBuffer;
  #events: EventSocket | undefined;
  #responder: ReplayResponder | undefined;
  /** Whether the ports are former ones, which this process may keep for a moment. */
  #isAgain = false;
  #late: readonly Uint8Array[] | undefined;

  constructor(options: KvEventPublisherOptions) {
    const { connect, host = "127.0.0.1", port = 0, replayPort } = options;
    this.#options = options;
    this.#topic = new TextEncoder().encode(options.topic);
    this.#buffer = createBatchBuffer(options.bufferSteps ?? defaultBufferSteps);
    this.endpoint = connect ?? tcpEndpoint(host, port);
    this.replayEndpoint = replayPort === undefined ? undefined : tcpEndpoint(host, replayPort);
  }

  /** Current number of subscriptions. */
  get subscriptions(): number {
    return this.#events?.subscriptions ?? 0;
  }

  /** Messages dropped at the high-water mark since the sockets were last opened. */
  get dropped(): number {
    return this.#events?.dropped ?? 0;
  }

  /** Replays answered since the sockets were last opened. */
  get replays(): number {
    return this.#responder?.answered ?? 0;
  }

  /** @throws Error when a port is taken; for a former port, when it is not free again within two seconds */
  async start(): Promise<void> {
    const { scheduler = systemScheduler } = this.#options;
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#bind();
        this.#isAgain = true;
        return;
      } catch (error) {
        await this.stop();
        if (!this.#isAgain || attempt === maxReopenAttempts) throw error;
      }
      await new Promise<void>((resolve) => {
        scheduler.after(reopenDelayMs, resolve);
      });
    }
  }

  async stop(): Promise<void> {
    await Promise.all([this.#events?.close(), this.#responder?.close()]);
    this.#events = undefined;
    this.#responder = undefined;
  }

  /**
   * Publishes the events of one step. An empty step is not published.
   *
   * @returns the sequence number of the message; undefined for an empty step
   */
  publish(events: readonly WireEvent[], delivery?: Delivery): number | undefined {
    if (events.length === 0) return undefined;
    const { clock, dialect, hashes, envelope, rank } = this.#options;
    const timestampS = clock.wallMs() / 1_000;
    const form = { timestampS, rank, ...(hashes && { hashes }), ...(envelope && { envelope }) };
    return this.publishPayload(encodeEventMessage(events, dialect, form), delivery);
  }

  /** Publishes a payload of any bytes. @returns its sequence number */
  publishPayload(payload: Uint8Array, delivery: Delivery = "sent"): number {
    const sequence = this.nextSequence++;
    this.#buffer.add({ sequence, payload });
    const frames = [this.#topic, writeSequence(sequence), payload];
    const delayed = this.#late;
    this.#late = delivery === "late" ? frames : undefined;
    if (delivery === "sent" || delivery === "twice") this.sendFrames(frames);
    if (delivery === "twice") this.sendFrames(frames);
    if (delayed) this.sendFrames(delayed);
    return sequence;
  }

  /** Skips sequence numbers: a gap that no replay can fill. */
  skipSequences(count: number): void {
    this.nextSequence += count;
  }

  /** Sends frames unchanged, numbered or not. */
  sendFrames(frames: readonly Uint8Array[]): void {
    this.#events?.send(frames);
  }

  /** Begins a new epoch like a restarted process: numbers begin at 0 and nothing can be replayed. */
  restart(): void {
    this.nextSequence = 0;
    this.#late = undefined;
    this.#buffer.clear();
  }

  /**
   * Closes the sockets and opens them again on the same ports; subscribers lose their connection meanwhile.
   *
   * @throws Error when a port is not free again within two seconds
   */
  async reconnect(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async #bind(): Promise<void> {
    const { connect, dialect, highWaterMark = defaultHighWaterMark, logger } = this.#options;
    const mode = connect === undefined ? "bind" : "connect";
    this.#events = await openEventSocket({ endpoint: this.endpoint, mode, highWaterMark, logger });
    this.endpoint = this.#events.endpoint;
    if (this.replayEndpoint === undefined) return;
    const topic = replayCarriesTopic(dialect) ? this.#topic : undefined;
    const replay = { endpoint: this.replayEndpoint, topic, buffer: this.#buffer, highWaterMark, logger };
    this.#responder = await startReplayResponder(replay);
    this.replayEndpoint = this.#responder.endpoint;
  }
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

const tcpEndpoint = (host: string, port: number): string => `tcp://${host}:${port}`;

interface EventSocketOptions {
  readonly endpoint: string;
  /** Bind the endpoint, or dial a subscriber that has bound it. */
  readonly mode: "bind" | "connect";
  /** Most messages kept for a slow subscriber, which loses further ones without notice. */
  readonly highWaterMark: number;
  readonly logger: Logger;
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
  const { mode, highWaterMark } = options;
  const socket = new XPublisher({
    ...{ context: zmqContext, linger: 0, sendHighWaterMark: highWaterMark },
    verbosity: "allSubsUnsubs",
  });
  try {
    if (mode === "bind") await socket.bind(options.endpoint);
    else socket.connect(options.endpoint);
  } catch (error) {
    socket.close();
    throw error;
  }
  return new EventSocket(socket, options);
}

/** The socket that sends events. */
class EventSocket {
  /** The bound or dialled endpoint. */
  readonly endpoint: string;
  /** Current number of subscriptions. */
  subscriptions = 0;
  /** Messages dropped because more than the high-water mark waited for the socket. */
  dropped = 0;
  readonly #socket: XPublisher;
  readonly #options: EventSocketOptions;
  readonly #listening: Promise<void>;
  #waiting: (readonly Uint8Array[])[] = [];
  #unsent = 0;
  #isSending = false;

  constructor(socket: XPublisher, options: EventSocketOptions) {
    this.#socket = socket;
    this.#options = options;
    this.endpoint = (options.mode === "bind" && socket.lastEndpoint) || options.endpoint;
    this.#listening = this.#listen();
  }

  /** Queues frames after those sent before. Never waits for slow subscribers. */
  send(frames: readonly Uint8Array[]): void {
    if (this.#socket.closed) return;
    if (this.#unsent >= this.#options.highWaterMark) {
      this.dropped += 1;
      return;
    }
    this.#waiting.push(frames);
    this.#unsent += 1;
    if (!this.#isSending) void this.#drain();
  }

  async close(): Promise<void> {
    this.#socket.close();
    await this.#listening;
  }

  async #listen(): Promise<void> {
    try {
      for await (const [frame] of this.#socket) {
        if (frame?.[0] === subscribeCode) this.subscriptions += 1;
        else if (frame?.[0] === unsubscribeCode) this.subscriptions -= 1;
      }
    } catch (error) {
      if (!this.#socket.closed) this.#options.logger.error("KV event publisher socket failed", { error });
    }
  }

  /**
   * Sends one message at a time. The library accepts a message only after the one before has left, which after some
   * hundreds in a row takes a turn of the event loop.
   */
  async #drain(): Promise<void> {
    this.#isSending = true;
    try {
      while (this.#waiting.length > 0) {
        for (const frames of this.#waiting.splice(0)) {
          await this.#socket.send([...frames]);
          this.#unsent -= 1;
        }
      }
    } catch (error) {
      if (!this.#socket.closed) this.#options.logger.warn("KV event messages not sent", { error });
    } finally {
      this.#isSending = false;
    }
  }
}
