import { gaugeOf, type Meter } from "@espalier/core";
import { LeasedPlane, type PlaneOptions } from "@espalier/mesh";
import { OwnUsage, type OwnUsageReport } from "./own-usage.ts";
import { PeerUsage } from "./peer-usage.ts";
import { readUsageFrame, type UsageFrame, writeUsageFrame } from "./usage-frame.ts";
import { PoolUsage, UsageSums } from "./usage-sums.ts";

/**
 * Bounds and times of the usage that routers send each other; see also `OwnUsageLimits` and `PeerUsageLimits`. Times in
 * milliseconds on the monotonic clock.
 */
export type UsageLimits = Readonly<typeof defaultUsageLimits>;

export const defaultUsageLimits = {
  maxTenants: 4_096,
  maxAdvertised: 1_024,
  maxTenantsOfRouter: 2_048,
  maxOrigins: 128,
  /** Usage within this time goes out together. */
  gatherMs: 250,
  tellShare: 0.01,
  tellFirstMs: 100,
  /**
   * How often tenants that wait, and some others in turn, are sent again, for routers that may have missed something.
   */
  refreshMs: 1_000,
  refreshTenants: 32,
  /** How often the tenants with the most tokens are determined. */
  rankMs: 5_000,
  leaseMs: 240_000,
  waitLeaseMs: 3_000,
  /** How often tenants of other routers that have almost nothing left are forgotten. */
  sweepMs: 30_000,
};

export interface UsagePlaneOptions extends PlaneOptions {
  readonly limits?: Partial<UsageLimits>;
}

/**
 * Sends what this router has served to tenants to other routers, and sums up what they send.
 *
 * Sends nothing before `start`, and nothing while this router has served no tenant.
 */
export class UsagePlane {
  readonly exchange: LeasedPlane<UsageFrame>;
  readonly #options: UsagePlaneOptions;
  readonly #limits: UsageLimits;
  readonly #meters: ReturnType<typeof createUsageMeters>;
  readonly #own: OwnUsage;
  readonly #sums = new UsageSums();
  readonly #peers: PeerUsage;
  #isStarted = false;

  constructor(options: UsagePlaneOptions) {
    const limits = { ...defaultUsageLimits, ...options.limits };
    const now = (): number => options.clock.nowMs();
    this.#options = options;
    this.#limits = limits;
    this.#meters = createUsageMeters(options.meter);
    this.#own = new OwnUsage(limits);
    this.#peers = new PeerUsage(this.#sums, limits, options.clock);
    this.exchange = new LeasedPlane<UsageFrame>(options, {
      name: "usage",
      frames: "usage frames",
      read: readUsageFrame,
      take: (frame) => this.#peers.receive(frame),
      refusedAs: "unknown",
      changes: () => this.#framesOf(this.#own.takeChanges(now())),
      gatherMs: () => limits.gatherMs,
      full: () => this.#framesOf(this.#own.all(now())),
      relay: () => this.#peers.relayFrames(),
      upkeep: [
        [limits.refreshMs, () => this.#refresh(now())],
        [limits.rankMs, () => this.#own.rank(now())],
        [limits.sweepMs, () => this.#peers.sweep()],
      ],
    });
  }

  /** The usage of one pool: tenants of several pools are independent. */
  of(pool: string): PoolUsage {
    return new PoolUsage(pool, {
      sums: this.#sums,
      clock: this.#options.clock,
      maxKeys: this.#limits.maxTenants,
      own: this.#own,
      changed: () => this.#changed(),
    });
  }

  start(): void {
    this.#isStarted = true;
    this.exchange.start();
    this.#changed();
  }

  stop(): void {
    this.#isStarted = false;
    this.exchange.stop();
  }

  #changed(): void {
    if (this.#isStarted && this.#own.hasChanges) this.exchange.changed();
  }

  #refresh(nowMs: number): void {
    this.exchange.tell(this.#framesOf(this.#own.takeRefresh(nowMs)));
    this.#peers.expire();
    this.#meters.unadvertised(this.#own.unadvertised);
    this.#meters.known(this.#sums.size);
    this.#meters.ageSeconds(this.#peers.ageMs() / 1_000);
  }

  #framesOf(reports: readonly OwnUsageReport[]): readonly Uint8Array[] {
    if (reports.length === 0) return [];
    const counter = this.exchange.nextCounter();
    const counted = reports.map((report) => ({ ...report, counter }));
    return [writeUsageFrame({ origin: this.#options.self(), counter, relayedAgeMs: undefined, reports: counted })];
  }
}

function createUsageMeters(meter: Meter) {
  return {
    known: gaugeOf(
      meter,
      "espalier_usage_known_tenants",
      "Tenants recently served by other routers, by class and pool.",
    ),
    ageSeconds: gaugeOf(
      meter,
      "espalier_usage_age_seconds",
      "Age of the oldest router's last usage frame, in seconds; 0 without one.",
    ),
    unadvertised: gaugeOf(
      meter,
      "espalier_usage_unreported_tenants",
      "Tenants below the reporting threshold, by class and pool.",
    ),
  };
}
