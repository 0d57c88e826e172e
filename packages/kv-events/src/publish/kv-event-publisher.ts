import type { Clock, Logger, Scheduler, Startable } from "@espalier/common";
import { type EventDialect, encodeEventMessage, type WireEvent } from "../codec/encode-events.ts";
import { writeSequence } from "../codec/replay-frames.ts";
import { createPublisherSockets } from "./publisher-sockets.ts";
import { createBatchBuffer } from "./replay-responder.ts";

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
