import type { Cancel, Clock, Meter, Scheduler } from "@espalier/common";
import type { NoteExchange } from "../notes/note-exchange.ts";
import type { Origin } from "../origin.ts";
import { subscribe } from "../subscribe.ts";
import type { OwnUsageReport } from "./own-tenant.ts";
import { OwnUsage } from "./own-usage.ts";
import { PeerUsage } from "./peer-usage.ts";
import { PoolUsage } from "./pool-usage.ts";
import { readUsageFrame, type UsageFrame, writeUsageFrame } from "./usage-frame.ts";
import { defaultUsageLimits, type UsageLimits } from "./usage-limits.ts";
import { createUsageMeters, type UsageMeters } from "./usage-meters.ts";
import { UsageSums } from "./usage-sums.ts";

export interface UsagePlaneOptions {
  /** This life of this router. */
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  readonly limits?: Partial<UsageLimits>;
}

/** Tells other routers what this one has done for tenants, and sums up what they tell. */
export interface UsagePlane {
  readonly exchange: NoteExchange;
  /** The usage of one pool: tenants of several pools have nothing to do with each other. */
  of(pool: string): PoolUsage;
  start(): void;
  stop(): void;
}

/** Nothing is sent before `start`, and nothing while this router has done nothing for anybody. */
export function createUsagePlane(options: UsagePlaneOptions): UsagePlane {
  return new Plane(options);
}

class Plane implements UsagePlane {
  readonly exchange: NoteExchange;
  readonly #options: UsagePlaneOptions;
  readonly #limits: UsageLimits;
  readonly #meters: UsageMeters;
  readonly #own: OwnUsage;
  readonly #sums = new UsageSums();
  readonly #peers: PeerUsage;
  readonly #listeners = new Set<(frame: Uint8Array) => void>();
  #timers: Cancel[] = [];
  #cancelFlush: Cancel | undefined;
  #isStarted = false;
  #counter = 0;

  constructor(options: UsagePlaneOptions) {
    const limits = { ...defaultUsageLimits, ...options.limits };
    this.#options = options;
    this.#limits = limits;
    this.#meters = createUsageMeters(options.meter);
    this.#own = new OwnUsage(limits);
    this.#peers = new PeerUsage({ sums: this.#sums, clock: options.clock, limits });
    this.exchange = {
      onFrame: (listener) => subscribe(this.#listeners, listener),
      fullFrames: () => this.#fullFrames(),
      relayFrames: () => this.#peers.relayFrames(),
      receive: (frame) => this.#receive(frame),
    };
  }

  of(pool: string): PoolUsage {
    return new PoolUsage(pool, {
      sums: this.#sums,
      clock: this.#options.clock,
      maxKeys: this.#limits.maxTenants,
      own: this.#own,
      changed: () => this.#flushSoon(),
    });
  }

  start(): void {
    const { scheduler, clock } = this.#options;
    const { refreshMs, rankMs, sweepMs } = this.#limits;
    this.#isStarted = true;
    this.#timers = [
      scheduler.every(refreshMs, () => this.#refresh()),
      scheduler.every(rankMs, () => this.#own.rank(clock.nowMs())),
      scheduler.every(sweepMs, () => this.#peers.sweep()),
    ];
    this.#flushSoon();
  }

  stop(): void {
    this.#isStarted = false;
    for (const cancel of this.#timers.splice(0)) cancel();
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
  }

  #flushSoon(): void {
    if (!this.#isStarted || !this.#own.hasChanges) return;
    this.#cancelFlush ??= this.#options.scheduler.after(this.#limits.gatherMs, () => {
      this.#cancelFlush = undefined;
      this.#tell(this.#own.takeChanges(this.#options.clock.nowMs()));
    });
  }

  #refresh(): void {
    this.#tell(this.#own.takeRefresh(this.#options.clock.nowMs()));
    this.#peers.expire();
    this.#meters.untold(this.#own.untold);
    this.#meters.known(this.#sums.size, this.#peers.ageMs);
  }

  #tell(reports: readonly OwnUsageReport[]): void {
    if (reports.length === 0) return;
    const frame = this.#frame(reports);
    for (const listener of this.#listeners) listener(frame);
  }

  #fullFrames(): readonly Uint8Array[] {
    const reports = this.#own.all(this.#options.clock.nowMs());
    return reports.length === 0 ? [] : [this.#frame(reports)];
  }

  #frame(reports: readonly OwnUsageReport[]): Uint8Array {
    const counter = ++this.#counter;
    const frame = writeUsageFrame({
      origin: this.#options.self(),
      counter,
      relayedAgeMs: undefined,
      reports: reports.map((report) => ({ ...report, counter })),
    });
    this.#meters.sent(frame.length);
    return frame;
  }

  #receive(bytes: Uint8Array): { readonly origin: Origin; readonly isNews: boolean } {
    const frame = this.#read(bytes);
    const isOwn = frame.origin.router === this.#options.self().router;
    const outcome = isOwn ? "unknown" : this.#peers.receive(frame);
    this.#meters.received(outcome);
    return { origin: frame.origin, isNews: outcome === "news" };
  }

  #read(bytes: Uint8Array): UsageFrame {
    try {
      return readUsageFrame(bytes);
    } catch (error) {
      this.#meters.received("invalid");
      throw error;
    }
  }
}
