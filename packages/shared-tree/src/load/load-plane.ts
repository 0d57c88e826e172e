import { counterBy, counterOf, gaugeOf, type Meter, secondsOf } from "@espalier/core";
import { LeasedPlane, type LoadExchange, type Origin, type PlaneOptions } from "@espalier/mesh";
import type { TargetSlots } from "../facts/target-slots.ts";
import {
  answersCapability,
  type LoadFrame,
  maxLoadFrameBytes,
  readLoadFrame,
  splitReports,
  withoutAnswers,
  writeLoadFrame,
} from "./load-frame.ts";
import type { LoadGauge } from "./load-gauge.ts";
import { LoadSums } from "./load-sums.ts";
import { OwnGauges, type OwnReport, type OwnStretch } from "./own-gauges.ts";
import { type LoadOrigin, PeerGauges } from "./peer-gauges.ts";

/** Bounds and times of the load plane; see also `PeerGaugesLimits`. Times in milliseconds on the monotonic clock. */
export type LoadLimits = Readonly<typeof defaultLoadLimits>;

const defaultLoadLimits = {
  maxOrigins: 1_024,
  maxTargets: 4_096,
  /** Least time between two frames with changes; the first change after it goes out at once. */
  coalesceMs: 10,
  /** Frames with changes per second at most, to all peers together: with many peers the gap between two is longer. */
  maxFramesPerS: 1_200,
  heartbeatMs: 500,
  leaseMs: 1_500,
  sweepMs: 250,
  rememberMs: 600_000,
};

export interface LoadPlaneOptions extends PlaneOptions {
  readonly slots: TargetSlots;
  readonly limits?: Partial<LoadLimits>;
}

/** Targets that a heartbeat repeats; more take several heartbeats in turn. */
export const heartbeatTargets = 64;
/**
 * Bytes of the reports in a new peer's first frame, less than a frame to leave capacity for heads. Heartbeats bring the
 * others.
 */
const fullFrameBytes = maxLoadFrameBytes - 2_048;

type Occasion = "change" | "heartbeat" | "full";

/**
 * Sends what this router has in flight to other routers, and sums up what they send.
 *
 * Beats from `start` on. Before that it receives frames and sends changes all the same.
 */
export class LoadPlane {
  readonly shared: LoadSums;
  readonly exchange: LoadExchange & LeasedPlane<LoadFrame>;
  readonly #options: LoadPlaneOptions;
  readonly #limits: LoadLimits;
  readonly #meters: LoadMeters;
  readonly #own: OwnGauges;
  readonly #peers: PeerGauges;
  #epoch: number;
  #sentMs = Number.NEGATIVE_INFINITY;
  #coalesceMs: number;
  #sweptMs = 0;

  constructor(options: LoadPlaneOptions) {
    const { clock, slots } = options;
    const limits = { ...defaultLoadLimits, ...options.limits };
    const meters = createLoadMeters(options.meter);
    this.#options = options;
    this.#limits = limits;
    this.#coalesceMs = limits.coalesceMs;
    this.#meters = meters;
    this.#own = new OwnGauges(limits.maxTargets);
    this.shared = new LoadSums(slots.capacity, () => clock.nowMs());
    this.#peers = new PeerGauges({ sums: this.shared, slots, clock, limits, meters });
    slots.onAssigned((target) => this.#peers.slotAssigned(target));
    this.#epoch = options.self().epoch;
    const plane = new LeasedPlane<LoadFrame>(options, {
      name: "load",
      frames: "load frames",
      read: readLoadFrame,
      take: (frame, linkDelayMs) => this.#peers.receive(frame, linkDelayMs),
      refusedAs: "unknown",
      changes: () => this.#changes(),
      gatherMs: () => this.#sentMs + this.#coalesceMs - clock.nowMs(),
      full: () => [this.#whole()],
      relay: () => this.#peers.relayFrames(),
      upkeep: [
        [limits.heartbeatMs, () => this.#heartbeat()],
        [limits.sweepMs, () => this.#sweep()],
      ],
    });
    this.exchange = Object.assign(plane, {
      setPeerCount: (count: number): void => {
        this.#coalesceMs = Math.max(limits.coalesceMs, (count * 1_000) / limits.maxFramesPerS);
      },
      hasAllOf: (origin: Origin): boolean => this.#peers.hasAllOf(origin),
      originGone: (origin: Origin): void => this.#peers.gone(origin),
      addition: { capability: answersCapability, without: withoutAnswers },
    });
  }

  /**
   * Sets what this router has in flight at a target now. The first change after a quiet time goes out before this
   * returns. The following ones go out together, `coalesceMs` after the last frame, or later where many peers get each.
   *
   * @throws RangeError for gauges that are not whole numbers from 0, and for a target's key over 255 bytes
   */
  set(target: string, gauge: LoadGauge): void {
    if (!this.#own.set(target, gauge)) this.#meters.refusedTarget();
    if (this.#own.hasChanges) this.exchange.changed();
  }

  /** Ends expired leases. After the process was stopped for long, call it once the sockets were drained. */
  checkLeases(): void {
    this.#peers.expire();
  }

  /** Call it before the slot of a target is released, so that the sums there hold nothing of the target. */
  release(target: string): void {
    this.#peers.release(target);
  }

  /** Every other known router, for operators. */
  describe(): readonly LoadOrigin[] {
    return this.#peers.describe();
  }

  start(): void {
    this.#sweptMs = this.#options.clock.nowMs();
    this.exchange.start();
    this.#heartbeat();
  }

  stop(): void {
    this.exchange.stop();
  }

  #sweep(): void {
    const nowMs = this.#options.clock.nowMs();
    const isLate = nowMs - this.#sweptMs > 2 * this.#limits.sweepMs;
    this.#sweptMs = nowMs;
    this.#peers.observeAges();
    // After this process stood still, frames of others are still unread: the next sweep checks the leases.
    if (!isLate) this.checkLeases();
  }

  #changes(): readonly Uint8Array[] {
    this.#noticeNewEpoch();
    const changes = this.#own.takeChanges();
    if (changes.length === 0) return [];
    this.#sentMs = this.#options.clock.nowMs();
    return splitReports(changes).map((reports) => this.#frame("change", reports));
  }

  #heartbeat(): void {
    this.exchange.flush();
    this.exchange.tell([this.#stretch("heartbeat", this.#own.nextStretch(heartbeatTargets))]);
  }

  #whole(): Uint8Array {
    this.#noticeNewEpoch();
    return this.#stretch("full", this.#own.whole(fullFrameBytes));
  }

  #stretch(as: Occasion, { covers, reports }: OwnStretch): Uint8Array {
    return this.#frame(as, reports, covers);
  }

  #frame(as: Occasion, reports: readonly OwnReport[], covers?: OwnStretch["covers"]): Uint8Array {
    const { self, clock } = this.#options;
    const counter = this.exchange.nextCounter();
    this.#meters.sent(as);
    return writeLoadFrame({
      origin: self(),
      counter,
      sentWallMs: Math.floor(clock.wallMs()),
      relayedAgeMs: undefined,
      covers,
      reports: reports.map((report) => ({ ...report, counter })),
    });
  }

  /** In a new epoch other routers know nothing of this one's gauges. */
  #noticeNewEpoch(): void {
    const { epoch } = this.#options.self();
    if (epoch === this.#epoch) return;
    this.#epoch = epoch;
    this.#own.forgetSent();
  }
}

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2.5, 5];

export type LoadMeters = ReturnType<typeof createLoadMeters>;

function createLoadMeters(meter: Meter) {
  return {
    sent: counterBy<Occasion>(
      meter,
      "trigger",
      "espalier_load_frames_sent_total",
      "Load frames from this router, by trigger.",
    ),
    lag: secondsOf(
      meter,
      buckets,
      "espalier_load_lag_seconds",
      "Time from the creation of a load frame to its arrival, by both routers' wall clocks, in seconds.",
    ),
    age: secondsOf(
      meter,
      buckets,
      "espalier_load_gauge_age_seconds",
      "Age of live routers' load gauges, sampled four times a second, in seconds.",
    ),
    phantom: gaugeOf(
      meter,
      "espalier_load_phantom_requests",
      "Requests in flight in the last gauges of silent routers, excluded from the sums.",
    ),
    expired: counterOf(meter, "espalier_load_leases_expired_total", "Expired leases of other routers' gauges."),
    refusedTarget: counterOf(
      meter,
      "espalier_load_refused_targets_total",
      "Load gauges not sent at the limit of targets.",
    ),
  };
}
