import type { Cancel, Clock, Meter, Scheduler } from "@espalier/common";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { Origin } from "../origin.ts";
import { subscribe } from "../subscribe.ts";
import type { LoadExchange, LoadGauge, SharedLoad } from "./load-exchange.ts";
import { type CoveredNumbers, maxLoadFrameBytes, readLoadFrame, writeLoadFrame } from "./load-frame.ts";
import { defaultLoadLimits, type LoadLimits } from "./load-limits.ts";
import { createLoadMeters, type LoadMeters, type SentAs } from "./load-meters.ts";
import { LoadSums } from "./load-sums.ts";
import { OwnGauges, type OwnReport } from "./own-gauges.ts";
import { type LoadOrigin, PeerGauges } from "./peer-gauges.ts";
import { splitReports } from "./split-reports.ts";

export interface LoadPlaneOptions {
  /** This life of this router. */
  readonly self: () => Origin;
  readonly slots: TargetSlots;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  readonly limits?: Partial<LoadLimits>;
}

/** Tells other routers what this one has in flight, and sums up what they tell. */
export interface LoadPlane {
  readonly exchange: LoadExchange;
  readonly shared: SharedLoad;
  /**
   * Says what this router has in flight at a target now. The first change after a quiet time goes out before this
   * returns, the following ones together, `coalesceMs` after the last frame, or later where many peers get each.
   *
   * @throws RangeError for gauges that are not whole numbers from 0, and for a target's key over 255 bytes
   */
  set(target: string, gauge: LoadGauge): void;
  /** Requests in flight at a slot by what routers that went silent last said: they may still be streaming. */
  expiredInFlight(slot: number): number;
  /** Ends the leases that have run out. Call it once the sockets were drained, after the process was stopped for long. */
  checkLeases(): void;
  onExpired(listener: (origin: Origin) => void): Cancel;
  /** Call it before the slot of a target is given up: nothing may be left in the sums there. */
  release(target: string): void;
  /** Every other router that is known, for operators. */
  describe(): readonly LoadOrigin[];
  start(): void;
  stop(): void;
}

/** Targets that a heartbeat repeats; more take several heartbeats in turn. */
export const heartbeatTargets = 64;
/** Bytes of the reports of a new peer's frame, which leaves room for its head and for what carries it; heartbeats bring the others. */
const fullFrameBytes = maxLoadFrameBytes - 2_048;

/** Beats from the start on; before that, frames are received and changes are told all the same. */
export function createLoadPlane(options: LoadPlaneOptions): LoadPlane {
  return new Plane(options);
}

class Plane implements LoadPlane {
  readonly shared: LoadSums;
  readonly exchange: LoadExchange;
  readonly #options: LoadPlaneOptions;
  readonly #limits: LoadLimits;
  readonly #meters: LoadMeters;
  readonly #own: OwnGauges;
  readonly #peers: PeerGauges;
  readonly #frameListeners = new Set<(frame: Uint8Array) => void>();
  readonly #expiredListeners = new Set<(origin: Origin) => void>();
  #timers: Cancel[] = [];
  #flushTimer: Cancel | undefined;
  #counter = 0;
  #epoch: number;
  #sentMs = Number.NEGATIVE_INFINITY;
  #coalesceMs: number;
  #sweptMs = 0;

  constructor(options: LoadPlaneOptions) {
    const { clock, slots } = options;
    const limits = { ...defaultLoadLimits, ...options.limits };
    this.#options = options;
    this.#limits = limits;
    this.#coalesceMs = limits.coalesceMs;
    this.#meters = createLoadMeters(options.meter);
    this.#own = new OwnGauges(limits.maxTargets);
    this.shared = new LoadSums(slots.capacity, () => clock.nowMs());
    this.#peers = new PeerGauges({ sums: this.shared, slots, clock, limits, meters: this.#meters });
    slots.onTaken((target) => this.#peers.slotTaken(target));
    this.#epoch = options.self().epoch;
    this.exchange = {
      onFrame: (listener) => subscribe(this.#frameListeners, listener),
      setPeerCount: (count) => {
        this.#coalesceMs = Math.max(limits.coalesceMs, (count * 1_000) / limits.maxFramesPerS);
      },
      fullFrame: () => this.#fullFrame(),
      relayFrames: () => this.#peers.relayFrames(),
      receive: (frame, isCredible) => this.#receive(frame, isCredible),
      hasAllOf: (origin) => this.#peers.hasAllOf(origin),
      originGone: (origin) => this.#peers.gone(origin),
    };
  }

  set(target: string, gauge: LoadGauge): void {
    if (!this.#own.set(target, gauge)) this.#meters.refusedTarget();
    if (!this.#own.hasChanges || this.#flushTimer) return;
    const waitMs = this.#sentMs + this.#coalesceMs - this.#options.clock.nowMs();
    if (waitMs <= 0) this.#flush();
    else this.#flushTimer = this.#options.scheduler.after(waitMs, () => this.#flush());
  }

  expiredInFlight(slot: number): number {
    return this.shared.expiredInFlight[slot] ?? 0;
  }

  checkLeases(): void {
    for (const origin of this.#peers.expire()) for (const listener of this.#expiredListeners) listener(origin);
  }

  onExpired(listener: (origin: Origin) => void): Cancel {
    return subscribe(this.#expiredListeners, listener);
  }

  release(target: string): void {
    this.#peers.release(target);
  }

  describe(): readonly LoadOrigin[] {
    return this.#peers.describe();
  }

  start(): void {
    const { scheduler, clock } = this.#options;
    this.#sweptMs = clock.nowMs();
    this.#timers = [
      scheduler.every(this.#limits.heartbeatMs, () => this.#heartbeat()),
      scheduler.every(this.#limits.sweepMs, () => this.#sweep()),
    ];
    this.#heartbeat();
  }

  stop(): void {
    for (const cancel of this.#timers.splice(0)) cancel();
    this.#flushTimer?.();
    this.#flushTimer = undefined;
  }

  #sweep(): void {
    const nowMs = this.#options.clock.nowMs();
    const isLate = nowMs - this.#sweptMs > 2 * this.#limits.sweepMs;
    this.#sweptMs = nowMs;
    this.#peers.observeAges();
    // After this process stood still, what others sent meanwhile has yet to be read: the next sweep judges them.
    if (!isLate) this.checkLeases();
  }

  #flush(): void {
    this.#flushTimer?.();
    this.#flushTimer = undefined;
    this.#noticeNewLife();
    const changes = this.#own.takeChanges();
    if (changes.length === 0) return;
    for (const reports of splitReports(changes)) this.#send("change", reports, undefined);
    this.#sentMs = this.#options.clock.nowMs();
  }

  #heartbeat(): void {
    this.#flush();
    const { covers, reports } = this.#own.nextStretch(heartbeatTargets);
    this.#send("heartbeat", reports, covers);
  }

  #fullFrame(): Uint8Array {
    this.#noticeNewLife();
    const { covers, reports } = this.#own.whole(fullFrameBytes);
    return this.#frame("full", reports, covers);
  }

  #send(as: SentAs, reports: readonly OwnReport[], covers: CoveredNumbers | undefined): void {
    const frame = this.#frame(as, reports, covers);
    for (const listener of this.#frameListeners) listener(frame);
  }

  #frame(as: SentAs, reports: readonly OwnReport[], covers: CoveredNumbers | undefined): Uint8Array {
    const { self, clock } = this.#options;
    const counter = ++this.#counter;
    const frame = writeLoadFrame({
      origin: self(),
      counter,
      sentWallMs: Math.floor(clock.wallMs()),
      relayedAgeMs: undefined,
      covers,
      reports: reports.map((report) => ({ ...report, counter })),
    });
    this.#meters.sent(as, frame.length);
    return frame;
  }

  /** Others begin with nothing where a router's epoch is new. */
  #noticeNewLife(): void {
    const { epoch } = this.#options.self();
    if (epoch === this.#epoch) return;
    this.#epoch = epoch;
    this.#own.forgetSent();
  }

  #receive(bytes: Uint8Array, isCredible = (_origin: Origin): boolean => true): { origin: Origin; isNews: boolean } {
    const frame = this.#read(bytes);
    const isOwn = frame.origin.router === this.#options.self().router;
    const outcome = isOwn || !isCredible(frame.origin) ? "unknown" : this.#peers.receive(frame);
    this.#meters.received(outcome);
    return { origin: frame.origin, isNews: outcome === "news" };
  }

  #read(bytes: Uint8Array): ReturnType<typeof readLoadFrame> {
    try {
      return readLoadFrame(bytes);
    } catch (error) {
      this.#meters.received("invalid");
      throw error;
    }
  }
}
