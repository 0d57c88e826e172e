import type { Cancel, Clock, Meter, Scheduler } from "@espalier/core";
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

/** The frames of a plane, and how it takes those of other routers. */
export interface PlaneCodec<Frame extends { readonly origin: Origin }, Outcome extends string> {
  /** @throws EspalierError `mesh_frame_invalid` */
  read(bytes: Uint8Array): Frame;
  /** Takes the frame of another router. `linkDelayMs` as in `PlaneExchange.receive`. */
  take(frame: Frame, linkDelayMs: number): Outcome | "news";
  /** How to count a frame that is of this router itself, or that may not speak for its origin. */
  readonly refusedAs: Outcome;
  /** Frames of what has changed since the last call. */
  changes(): readonly Uint8Array[];
  /** Milliseconds from a change to its frame, when nothing else is waiting; 0 or less: at once. */
  gatherMs(): number;
  full(): readonly Uint8Array[];
  relay(): readonly RelayFrame[];
  received(outcome: Outcome | "news" | "invalid"): void;
  /** Tasks from `start` on, with their periods in milliseconds. */
  readonly upkeep: readonly (readonly [everyMs: number, task: () => void])[];
}

/**
 * One leased broadcast. Every router sends what it has to all others, in absolute values, with a counter that only
 * rises. It gathers changes, and repeats them from time to time for routers that missed them. The codec has the
 * content; the plane's table has whom to believe and how long (load, usage, notes).
 */
export class LeasedPlane<Frame extends { readonly origin: Origin }, Outcome extends string> implements PlaneExchange {
  readonly #self: () => Origin;
  readonly #scheduler: Scheduler;
  readonly #codec: PlaneCodec<Frame, Outcome>;
  readonly #listeners = new Set<(frame: Uint8Array) => void>();
  #timers: Cancel[] = [];
  #cancelFlush: Cancel | undefined;
  #counter = 0;

  constructor({ self, scheduler }: Pick<PlaneOptions, "self" | "scheduler">, codec: PlaneCodec<Frame, Outcome>) {
    this.#self = self;
    this.#scheduler = scheduler;
    this.#codec = codec;
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
    for (const frame of frames) for (const listener of this.#listeners) listener(frame);
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
    return this.#codec.full();
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
    this.#codec.received(outcome);
    return { origin, isNews: outcome === "news" };
  }

  #read(bytes: Uint8Array): Frame {
    try {
      return this.#codec.read(bytes);
    } catch (error) {
      this.#codec.received("invalid");
      throw error;
    }
  }
}
