import { type Cancel, type Clock, counterBy, counterOf, type Meter, type Scheduler } from "@espalier/core";
import type { Origin } from "../origin.ts";
import { subscribe } from "../subscribe.ts";
import type { PlaneExchange, Received, RelayFrame } from "./plane-exchange.ts";

/** What every plane of a replica is made of. */
export interface PlaneOptions {
  /** This epoch of this router. */
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/**
 * What becomes of a frame. `stale`: nothing is new in it; `unknown`: it is of an epoch that was replaced, of this router
 * itself, or of one router too many; `refused`: there is no place for what it has.
 */
export type Outcome = "news" | "stale" | "unknown" | "refused" | "invalid";

/** The frames of a plane, and how it takes those of other routers. */
export interface PlaneCodec<Frame extends { readonly origin: Origin }> {
  /** In the names of metrics. */
  readonly name: string;
  /** What frames are called in the help of metrics. */
  readonly frames: string;
  /** @throws EspalierError `mesh_frame_invalid` */
  read(bytes: Uint8Array): Frame;
  /** Takes the frame of another router. `linkDelayMs` as in `PlaneExchange.receive`. */
  take(frame: Frame, linkDelayMs: number): Outcome;
  /** How to count a frame that is of this router itself, or that may not speak for its origin. */
  readonly refusedAs: Outcome;
  /** Frames of what has changed since the last call. */
  changes(): readonly Uint8Array[];
  /** Milliseconds from a change to its frame, when nothing else is waiting; 0 or less: at once. */
  gatherMs(): number;
  full(): readonly Uint8Array[];
  relay(): readonly RelayFrame[];
  /** Tasks from `start` on, with their periods in milliseconds. */
  readonly upkeep: readonly (readonly [everyMs: number, task: () => void])[];
}

/**
 * One leased broadcast. Every router sends what it has to all others, in absolute values, with a counter that only
 * rises. It gathers changes, and repeats them from time to time for routers that missed them. The codec has the
 * content; a `PeerTable` has whom to believe and how long (load, usage, notes).
 */
export class LeasedPlane<Frame extends { readonly origin: Origin }> implements PlaneExchange {
  readonly #self: () => Origin;
  readonly #scheduler: Scheduler;
  readonly #codec: PlaneCodec<Frame>;
  readonly #meters: ReturnType<typeof createPlaneMeters>;
  readonly #listeners = new Set<(frame: Uint8Array) => void>();
  #timers: Cancel[] = [];
  #cancelFlush: Cancel | undefined;
  #counter = 0;

  constructor({ self, scheduler, meter }: PlaneOptions, codec: PlaneCodec<Frame>) {
    this.#self = self;
    this.#scheduler = scheduler;
    this.#codec = codec;
    this.#meters = createPlaneMeters(meter, codec);
  }

  /** For the next frame, or for the next item in one. */
  nextCounter(): number {
    this.#counter += 1;
    return this.#counter;
  }

  /** Something has changed: it is sent at once, or when changes were gathered for long enough. */
  changed(): void {
    if (this.#cancelFlush) return;
    const waitMs = this.#codec.gatherMs();
    if (waitMs <= 0) this.flush();
    else this.#cancelFlush = this.#scheduler.after(waitMs, () => this.flush());
  }

  /** Sends the present changes. */
  flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    this.tell(this.#codec.changes());
  }

  tell(frames: readonly Uint8Array[]): void {
    for (const frame of this.#counted(frames)) for (const listener of this.#listeners) listener(frame);
  }

  start(): void {
    this.#timers = this.#codec.upkeep.map(([everyMs, task]) => this.#scheduler.every(everyMs, task));
  }

  stop(): void {
    for (const cancel of this.#timers.splice(0)) cancel();
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
  }

  onFrame(listener: (frame: Uint8Array) => void): Cancel {
    return subscribe(this.#listeners, listener);
  }

  fullFrames(): readonly Uint8Array[] {
    return this.#counted(this.#codec.full());
  }

  relayFrames(): readonly RelayFrame[] {
    return this.#codec.relay();
  }

  receive(
    bytes: Uint8Array,
    isCredible: (origin: Origin) => boolean = () => true,
    linkDelayMs: number = Number.NaN,
  ): Received {
    const frame = this.#read(bytes);
    const { origin } = frame;
    const isOther = origin.router !== this.#self().router && isCredible(origin);
    const outcome = isOther ? this.#codec.take(frame, linkDelayMs) : this.#codec.refusedAs;
    this.#meters.received(outcome);
    return { origin, isNews: outcome === "news" };
  }

  #read(bytes: Uint8Array): Frame {
    try {
      return this.#codec.read(bytes);
    } catch (error) {
      this.#meters.received("invalid");
      throw error;
    }
  }
  #counted(frames: readonly Uint8Array[]): readonly Uint8Array[] {
    for (const { length } of frames) this.#meters.sent(length);
    return frames;
  }
}

function createPlaneMeters(meter: Meter, { name, frames }: { readonly name: string; readonly frames: string }) {
  return {
    received: counterBy<Outcome>(
      meter,
      "outcome",
      `espalier_${name}_frames_received_total`,
      `${frames.charAt(0).toUpperCase()}${frames.slice(1)} from other routers, by outcome.`,
    ),
    sent: counterOf(
      meter,
      `espalier_${name}_sent_bytes_total`,
      `Bytes of ${frames} from this router, each counted once for all peers.`,
    ),
  };
}
