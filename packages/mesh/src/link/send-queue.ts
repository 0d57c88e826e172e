import { needsCredit } from "./credit.ts";
import { type Channel, channels } from "./link.ts";
import type { LinkLimits } from "./link-limits.ts";

interface Lane {
  readonly channel: Channel;
  readonly maxBytes: number;
  /** Infinite for channels that need no credit. */
  readonly windowBytes: number;
  frames: Uint8Array[];
  /** Place of the first frame that waits; the ones before it have gone. */
  head: number;
  waitingBytes: number;
  /** Sent, and not yet dealt with by the other end. */
  flyingBytes: number;
  /** A frame was dropped since there was room last. */
  hasDropped: boolean;
  /** A frame has gone since one was dropped last. */
  hasMoved: boolean;
}

/** Gone frames at the front of a lane that are worth moving the rest for. */
const compactAt = 256;

/** The frames that wait on a link: a bounded queue for each channel, taken in the order of the channels. */
export class SendQueue {
  readonly #lanes: readonly Lane[];
  readonly #byChannel: Readonly<Record<Channel, Lane>>;
  waitingBytes = 0;

  constructor({ queueBytes, windowBytes }: Pick<LinkLimits, "queueBytes" | "windowBytes">) {
    this.#lanes = channels.map((channel) => ({
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
    this.#byChannel = Object.fromEntries(this.#lanes.map((lane) => [lane.channel, lane])) as Record<Channel, Lane>;
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
    const lane = this.#byChannel[channel];
    if (lane.waitingBytes > 0 && lane.waitingBytes + frame.length > lane.maxBytes) {
      lane.hasDropped = true;
      lane.hasMoved = false;
      return false;
    }
    lane.frames.push(frame);
    lane.waitingBytes += frame.length;
    this.waitingBytes += frame.length;
    return true;
  }

  /** The next frame that may go, of the first channel that has one. */
  take(): { readonly channel: Channel; readonly frame: Uint8Array } | undefined {
    if (this.waitingBytes === 0) return undefined;
    for (const lane of this.#lanes) {
      const frame = lane.frames[lane.head];
      if (!frame || !hasWindow(lane)) continue;
      lane.head += 1;
      if (lane.head >= compactAt || lane.head === lane.frames.length) {
        lane.frames = lane.frames.slice(lane.head);
        lane.head = 0;
      }
      lane.waitingBytes -= frame.length;
      lane.hasMoved = true;
      this.waitingBytes -= frame.length;
      if (lane.windowBytes < Number.POSITIVE_INFINITY) lane.flyingBytes += frame.length;
      return { channel: lane.channel, frame };
    }
    return undefined;
  }

  /** The frames of the channels before `bulk` that wait still, all of them, for a last write. */
  *takeLast(): Generator<Uint8Array, void, undefined> {
    for (const lane of this.#lanes) {
      if (lane.channel !== "bulk") yield* lane.frames.slice(lane.head);
    }
    this.clear();
  }

  /** @throws RangeError for more than is on its way */
  credit(channel: Channel, bytes: number): void {
    const lane = this.#byChannel[channel];
    if (bytes > lane.flyingBytes) throw new RangeError(`credit for ${bytes} of ${lane.flyingBytes} bytes`);
    lane.flyingBytes -= bytes;
  }

  /** The channels that had dropped frames and have moved on until half empty; each is told once. */
  takeDrained(): readonly Channel[] {
    const drained: Channel[] = [];
    for (const lane of this.#lanes) {
      if (!lane.hasDropped || !lane.hasMoved || lane.waitingBytes > lane.maxBytes / 2) continue;
      lane.hasDropped = false;
      drained.push(lane.channel);
    }
    return drained;
  }

  clear(): void {
    for (const lane of this.#lanes) {
      lane.frames = [];
      lane.head = 0;
      lane.waitingBytes = 0;
    }
    this.waitingBytes = 0;
  }
}

/** A frame may go, whatever its size, while less than the window is on its way. */
const hasWindow = (lane: Lane): boolean => lane.flyingBytes < lane.windowBytes;
