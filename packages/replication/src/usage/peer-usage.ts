import type { Clock, RouterId } from "@espalier/common";
import type { Origin } from "../origin.ts";
import { OriginUsage } from "./origin-usage.ts";
import { type UsageFrame, writeUsageFrame } from "./usage-frame.ts";
import type { UsageLimits } from "./usage-limits.ts";
import type { UsageSums } from "./usage-sums.ts";

/** What has decayed to less is nothing. */
const leastTokens = 1;

export interface PeerUsageOptions {
  readonly sums: UsageSums;
  readonly clock: Clock;
  readonly limits: UsageLimits;
}

/** What all other routers have told of tenants, as long as their leases run. */
export class PeerUsage {
  readonly #options: PeerUsageOptions;
  readonly #origins = new Map<RouterId, OriginUsage>();

  constructor(options: PeerUsageOptions) {
    this.#options = options;
  }

  /** @returns what the frame was good for */
  receive(frame: UsageFrame): "news" | "stale" | "unknown" {
    const { limits, sums, clock } = this.#options;
    const { router, epoch } = frame.origin;
    const nowMs = clock.nowMs();
    let origin = this.#origins.get(router);
    if (!origin) {
      if (this.#origins.size >= limits.maxOrigins) return "unknown";
      origin = new OriginUsage(epoch, { sums, limits });
      this.#origins.set(router, origin);
    }
    if (epoch < origin.epoch) return "unknown";
    return origin.apply(frame, nowMs) ? "news" : "stale";
  }

  /** Ends leases that have run out. */
  expire(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [router, origin] of this.#origins) {
      if (nowMs - origin.heardMs <= this.#options.limits.leaseMs) continue;
      origin.forgetBelow(Number.POSITIVE_INFINITY, nowMs);
      this.#origins.delete(router);
    }
  }

  /** Forgets tenants that have next to nothing any more. */
  sweep(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const origin of this.#origins.values()) origin.forgetBelow(leastTokens, nowMs);
  }

  /** Since the router was heard that counts and is silent for longest; 0 when there is none. */
  get ageMs(): number {
    const nowMs = this.#options.clock.nowMs();
    let oldestMs = nowMs;
    for (const { heardMs, tenants } of this.#origins.values()) if (tenants > 0) oldestMs = Math.min(oldestMs, heardMs);
    return nowMs - oldestMs;
  }

  relayFrames(): readonly { readonly origin: Origin; readonly frame: Uint8Array }[] {
    const nowMs = this.#options.clock.nowMs();
    return [...this.#origins].map(([router, known]) => {
      const { epoch, counter, heardMs } = known;
      const origin = { router, epoch };
      const frame = { origin, counter, relayedAgeMs: Math.max(0, nowMs - heardMs), reports: known.reports(nowMs) };
      return { origin, frame: writeUsageFrame(frame) };
    });
  }
}
