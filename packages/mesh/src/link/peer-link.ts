import { type Clock, EspalierError, type Logger } from "@espalier/common";
import type { Connection } from "../transport/transport.ts";
import { drainMarkBytes } from "../transport/transport-limits.ts";
import { decodeGoodbye, encodeGoodbye } from "../wire/endings.ts";
import { frameTypes } from "../wire/frame-types.ts";
import { channelOf, dataHeaderBytes, decodeCredit, encodeCredit, encodeData } from "../wire/link-frames.ts";
import { creditBytes, needsCredit } from "./credit.ts";
import type { Channel, Link, LinkEnd, LinkStats, PeerIdentity } from "./link.ts";
import type { LinkLimits } from "./link-limits.ts";
import type { LinkMeters } from "./link-meters.ts";
import { SendQueue } from "./send-queue.ts";

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

/** Ends that leave no one to say goodbye to. */
const abruptEnds: ReadonlySet<LinkEnd> = new Set(["reset", "silent"]);
/** Ends by intent, before which all that waits, bulk apart, is still written. */
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
      throw new RangeError(`a frame of ${frame.length} bytes where ${limits.maxFrameBytes} are the most`);
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
    try {
      this.#dispatch(frame);
    } catch (error) {
      const why = error instanceof EspalierError && error.code === "mesh_update_refused";
      this.#deps.logger.warn("a frame of a peer cannot be used; its link is closed", { error });
      this.close(why ? "update-refused" : "frame-invalid");
    }
  }

  /** The connection has room again. */
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

  #dispatch(frame: Uint8Array): void {
    switch (frame[0]) {
      case frameTypes.data:
        this.#data(channelOf(frame), frame);
        break;
      case frameTypes.credit: {
        const { channel, bytes } = decodeCredit(frame);
        this.#queue.credit(channel, bytes);
        this.#flush();
        break;
      }
      case frameTypes.goodbye: {
        const why = decodeGoodbye(frame);
        this.end(why === "stopped" ? "goodbye" : why);
        this.#deps.connection.close(1000, why);
        break;
      }
      default:
        throw new RangeError(`a frame of type ${frame[0]} on a link`);
    }
  }

  #data(channel: Channel, frame: Uint8Array): void {
    this.stats.receivedBytes += frame.length;
    this.stats.receivedFrames += 1;
    this.#deps.meters.received(channel, frame.length);
    this.#deps.onFrame(this, channel, frame.subarray(dataHeaderBytes));
    if (!needsCredit(channel)) return;
    this.#owedBytes[channel] += frame.length;
    if (this.#hasEnded || this.#owedBytes[channel] < creditBytes) return;
    this.#deps.connection.send(encodeCredit({ channel, bytes: this.#owedBytes[channel] }));
    this.#owedBytes[channel] = 0;
  }

  /** Writes what waits while the connection takes it, then tells which channels have room again. */
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
