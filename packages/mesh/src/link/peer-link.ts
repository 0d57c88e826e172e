import {
  type Clock,
  type Connection,
  counterBy,
  drainMarkBytes,
  EspalierError,
  gaugeOf,
  type Logger,
  type Meter,
} from "@espalier/core";
import {
  type Channel,
  channelOf,
  channels,
  dataHeaderBytes,
  decodeCredit,
  decodeGoodbye,
  decodeReject,
  encodeCredit,
  encodeData,
  encodeGoodbye,
  frameTypes,
  type LinkEnd,
  linkEnds,
  rejectReasons,
} from "../wire/link-frames.ts";
import type { DialFailure, Link, LinkLimits, LinkStats, PeerIdentity } from "./link.ts";

export interface PeerLinkDeps {
  readonly connection: Connection;
  readonly peer: PeerIdentity;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly meters: LinkMeters;
  readonly limits: LinkLimits;
  onFrame(link: Link, channel: Channel, frame: Uint8Array): void;
  onDrained(link: Link, channel: Channel): void;
  /** Called once, from `close` or when the other end is gone. */
  onEnd(link: Link, why: LinkEnd): void;
}

/** Ends after which the other end cannot get a goodbye. */
const abruptEnds: ReadonlySet<LinkEnd> = new Set(["reset", "silent"]);
/** Intended ends. Before them all waiting frames except bulk are still written. */
const orderlyEnds: ReadonlySet<LinkEnd> = new Set(["goodbye", "stopped"]);

/** A link over a connection whose other end has proved who it is. */
export class PeerLink implements Link {
  readonly peer: PeerIdentity;
  readonly stats: LinkStats;
  roundTripMs = Number.NaN;
  readonly #deps: PeerLinkDeps;
  readonly #queue: SendQueue;
  /** Bytes received and not credited, by channel. */
  readonly #owedBytes: Record<Channel, number> = { load: 0, membership: 0, documents: 0, bulk: 0, notes: 0 };
  #isFlushing = false;
  #hasEnded = false;

  constructor(deps: PeerLinkDeps) {
    this.#deps = deps;
    this.peer = deps.peer;
    this.#queue = new SendQueue(deps.limits);
    this.stats = {
      sentBytes: 0,
      receivedBytes: 0,
      sentFrames: 0,
      receivedFrames: 0,
      droppedFrames: 0,
      lastHeardMs: deps.clock.nowMs(),
    };
  }

  get bufferedBytes(): number {
    return this.#queue.waitingBytes + this.#deps.connection.bufferedBytes;
  }

  waitingBytes(channel: Channel): number {
    return this.#queue.waitingOn(channel);
  }

  send(channel: Channel, frame: Uint8Array): boolean {
    const { limits, meters } = this.#deps;
    if (frame.length > limits.maxFrameBytes) {
      throw new RangeError(`a frame of ${frame.length} bytes, maximum ${limits.maxFrameBytes}`);
    }
    if (this.#hasEnded) return false;
    if (!this.#queue.add(channel, encodeData(channel, frame))) {
      this.stats.droppedFrames += 1;
      meters.dropped(channel);
      return false;
    }
    this.#flush();
    return true;
  }

  /** Takes a frame of the connection. */
  receive(frame: Uint8Array): void {
    if (this.#hasEnded) return;
    this.stats.lastHeardMs = this.#deps.clock.nowMs();
    let handle: () => void;
    try {
      handle = this.#read(frame);
    } catch (error) {
      this.#closeFor(error);
      return;
    }
    handle();
  }

  #closeFor(error: unknown): void {
    this.#deps.logger.warn("invalid frame of a peer; closing its link", { error });
    this.close(
      error instanceof EspalierError && error.code === "mesh_update_refused" ? "update-refused" : "frame-invalid",
    );
  }

  /** The connection has capacity again. */
  drained(): void {
    this.#flush();
  }

  close(why: LinkEnd): void {
    if (this.#hasEnded) return;
    const { connection } = this.#deps;
    if (orderlyEnds.has(why)) {
      for (const frame of this.#queue.takeLast()) connection.send(frame);
    }
    this.end(why);
    if (abruptEnds.has(why)) {
      connection.terminate();
      return;
    }
    connection.send(encodeGoodbye(why));
    connection.close(1000, why);
  }

  /** The connection has ended. */
  end(why: LinkEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#queue.clear();
    this.#deps.meters.ended(why);
    this.#deps.onEnd(this, why);
  }

  /** @returns what is to be done about a frame @throws RangeError for one that no router may send */
  #read(frame: Uint8Array): () => void {
    switch (frame[0]) {
      case frameTypes.data: {
        const channel = channelOf(frame);
        return () => this.#data(channel, frame);
      }
      case frameTypes.credit: {
        const { channel, bytes } = decodeCredit(frame);
        this.#queue.credit(channel, bytes);
        return () => this.#flush();
      }
      case frameTypes.goodbye: {
        const why = decodeGoodbye(frame);
        return () => this.#ended(why === "stopped" ? "goodbye" : why);
      }
      case frameTypes.reject: {
        // The other end found a reason against it after this one had its acceptance.
        const { reason, detail } = decodeReject(frame);
        return () => {
          this.#deps.logger.info("router withdrew its acceptance of the link", { reason, detail });
          this.#ended("reset");
        };
      }
      default:
        throw new RangeError(`a frame of type ${frame[0]} on a link`);
    }
  }

  #ended(why: LinkEnd): void {
    this.end(why);
    this.#deps.connection.close(1000, why);
  }

  #data(channel: Channel, frame: Uint8Array): void {
    this.stats.receivedBytes += frame.length;
    this.stats.receivedFrames += 1;
    this.#deps.meters.received(channel, frame.length);
    try {
      this.#deps.onFrame(this, channel, frame.subarray(dataHeaderBytes));
    } catch (error) {
      this.#closeFor(error);
      return;
    }
    if (!needsCredit(channel)) return;
    this.#owedBytes[channel] += frame.length;
    if (this.#hasEnded || this.#owedBytes[channel] < creditBytes) return;
    this.#deps.connection.send(encodeCredit({ channel, bytes: this.#owedBytes[channel] }));
    this.#owedBytes[channel] = 0;
  }

  /** Writes queued frames while the connection accepts them, then returns which channels have capacity again. */
  #flush(): void {
    if (this.#isFlushing || this.#hasEnded) return;
    this.#isFlushing = true;
    const { connection, meters } = this.#deps;
    try {
      for (;;) {
        while (connection.bufferedBytes < drainMarkBytes) {
          const next = this.#queue.take();
          if (!next) break;
          connection.send(next.frame);
          this.stats.sentBytes += next.frame.length;
          this.stats.sentFrames += 1;
          meters.sent(next.channel, next.frame.length);
        }
        const drained = this.#queue.takeDrained();
        if (drained.length === 0) return;
        for (const channel of drained) this.#deps.onDrained(this, channel);
      }
    } finally {
      this.#isFlushing = false;
    }
  }
}

interface ChannelQueue {
  readonly channel: Channel;
  readonly maxBytes: number;
  /** Infinite for channels that need no credit. */
  readonly windowBytes: number;
  frames: Uint8Array[];
  /** Place of the first waiting frame; the ones before it have been sent. */
  head: number;
  waitingBytes: number;
  /** Bytes sent and not yet processed by the other end. */
  flyingBytes: number;
  /** A frame was dropped since the queue last had capacity. */
  hasDropped: boolean;
  /** A frame was sent since the latest drop. */
  hasMoved: boolean;
}

/** Sent frames at the front of a queue after which it is compacted. */
const compactAt = 256;

/** The waiting frames of a link: a bounded queue for each channel, taken in the order of the channels. */
export class SendQueue {
  readonly #queues: readonly ChannelQueue[];
  readonly #byChannel: Readonly<Record<Channel, ChannelQueue>>;
  waitingBytes = 0;

  constructor({ queueBytes, windowBytes }: Pick<LinkLimits, "queueBytes" | "windowBytes">) {
    this.#queues = channels.map((channel) => ({
      channel,
      maxBytes: queueBytes[channel],
      windowBytes: needsCredit(channel) ? windowBytes[channel] : Number.POSITIVE_INFINITY,
      frames: [],
      head: 0,
      waitingBytes: 0,
      flyingBytes: 0,
      hasDropped: false,
      hasMoved: false,
    }));
    this.#byChannel = Object.fromEntries(this.#queues.map((queue) => [queue.channel, queue])) as Record<
      Channel,
      ChannelQueue
    >;
  }

  waitingOn(channel: Channel): number {
    return this.#byChannel[channel].waitingBytes;
  }

  /**
   * Adds a frame. An empty queue takes one of any size.
   *
   * @returns false when it was dropped
   */
  add(channel: Channel, frame: Uint8Array): boolean {
    const queue = this.#byChannel[channel];
    if (queue.waitingBytes > 0 && queue.waitingBytes + frame.length > queue.maxBytes) {
      queue.hasDropped = true;
      queue.hasMoved = false;
      return false;
    }
    queue.frames.push(frame);
    queue.waitingBytes += frame.length;
    this.waitingBytes += frame.length;
    return true;
  }

  /** The next frame that may be sent, of the first channel that has one. */
  take(): { readonly channel: Channel; readonly frame: Uint8Array } | undefined {
    if (this.waitingBytes === 0) return undefined;
    for (const queue of this.#queues) {
      const frame = queue.frames[queue.head];
      if (!frame || !hasWindow(queue)) continue;
      queue.head += 1;
      if (queue.head >= compactAt || queue.head === queue.frames.length) {
        queue.frames = queue.frames.slice(queue.head);
        queue.head = 0;
      }
      queue.waitingBytes -= frame.length;
      queue.hasMoved = true;
      this.waitingBytes -= frame.length;
      if (queue.windowBytes < Number.POSITIVE_INFINITY) queue.flyingBytes += frame.length;
      return { channel: queue.channel, frame };
    }
    return undefined;
  }

  /** All waiting frames of the channels before `bulk`, for a last write. */
  *takeLast(): Generator<Uint8Array, void, undefined> {
    for (const queue of this.#queues) {
      if (queue.channel !== "bulk") yield* queue.frames.slice(queue.head);
    }
    this.clear();
  }

  /** @throws RangeError for more bytes than are in flight */
  credit(channel: Channel, bytes: number): void {
    const queue = this.#byChannel[channel];
    if (bytes > queue.flyingBytes) throw new RangeError(`credit for ${bytes} of ${queue.flyingBytes} bytes`);
    queue.flyingBytes -= bytes;
  }

  /** The channels that had dropped frames and are half empty again; each is returned once. */
  takeDrained(): readonly Channel[] {
    const drained: Channel[] = [];
    for (const queue of this.#queues) {
      if (!queue.hasDropped || !queue.hasMoved || queue.waitingBytes > queue.maxBytes / 2) continue;
      queue.hasDropped = false;
      drained.push(queue.channel);
    }
    return drained;
  }

  clear(): void {
    for (const queue of this.#queues) {
      queue.frames = [];
      queue.head = 0;
      queue.waitingBytes = 0;
    }
    this.waitingBytes = 0;
  }
}

/** A frame of any size may be sent while less than the window is in flight. */
const hasWindow = (queue: ChannelQueue): boolean => queue.flyingBytes < queue.windowBytes;

/**
 * The receiver credits a channel's bytes, all at once, after so many. It is part of the protocol: with a smaller window
 * at the sender both ends would wait for each other.
 */
export const creditBytes = 32 * 1_024;

/** Whether a channel's frames need credit; the small ones of the other channels never wait for it. */
export function needsCredit(channel: Channel): channel is "documents" | "bulk" {
  return channel === "documents" || channel === "bulk";
}

const dialFailureKinds: readonly DialFailure["kind"][] = ["refused", "timeout", "unreachable", "rejected"];

/** The metrics of all links of a router. */
export type LinkMeters = ReturnType<typeof createLinkMeters>;

/** Registers the metrics of links, all series at zero. */
export function createLinkMeters(meter: Meter) {
  const countersOf = <Value extends string>(label: string, values: readonly Value[], name: string, help: string) => {
    const count = counterBy<Value>(meter, label, name, help);
    for (const value of values) count(value, 0);
    return count;
  };
  const byChannel = (name: string, help: string) => countersOf("channel", channels, `espalier_mesh_${name}`, help);
  const sentBytes = byChannel("sent_bytes_total", "Bytes sent to other routers, by channel.");
  const sentFrames = byChannel("sent_frames_total", "Frames sent to other routers, by channel.");
  const receivedBytes = byChannel("received_bytes_total", "Bytes received from other routers, by channel.");
  const receivedFrames = byChannel("received_frames_total", "Frames received from other routers, by channel.");
  const links = gaugeOf(meter, "espalier_mesh_links", "Links to other routers.");
  links(0);
  return {
    sent(channel: Channel, bytes: number): void {
      sentBytes(channel, bytes);
      sentFrames(channel);
    },
    received(channel: Channel, bytes: number): void {
      receivedBytes(channel, bytes);
      receivedFrames(channel);
    },
    dropped: byChannel("dropped_frames_total", "Frames dropped because the queue of their channel was full."),
    links,
    ended: countersOf("reason", linkEnds, "espalier_mesh_links_closed_total", "Closed links, by reason."),
    rejected: countersOf(
      "reason",
      rejectReasons,
      "espalier_mesh_rejects_total",
      "Handshakes refused by this router or by the other one, by reason.",
    ),
    dialFailed: countersOf(
      "kind",
      dialFailureKinds,
      "espalier_mesh_dial_failures_total",
      "Failed dials of other routers, by kind of failure.",
    ),
  };
}
