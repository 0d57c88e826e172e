import type { AdmissionTarget, OthersLoad } from "./admission-target.ts";
import type { FleetUsage } from "./fleet-usage.ts";

/** By what part of what a tenant was served another one has to have less before it goes first: what routers know is late. */
const yieldShare = 0.01;
/** Room that nobody else has taken in this time is nobody else's: three looks of another router, and its word of it. */
export const mostYieldMs = 80;

/** A request that might go now. */
export interface YieldCandidate<Target extends AdmissionTarget> {
  readonly className: string;
  /** Tokens that its tenant was served, and its lift. */
  readonly standing: number;
  readonly uncachedTokens: number;
  /** Those that have room for it. */
  readonly targets: readonly Target[];
}

/**
 * Leaves room at engines to other routers where a tenant waits that was served less. Without it a router would keep what it
 * has for ever: it is the first to know when a first token of its own makes room, and takes that room again.
 *
 * An engine that has nothing to do is used by whoever sees it.
 */
export class Yielding<Target extends AdmissionTarget> {
  readonly #fleet: FleetUsage;
  readonly #others: OthersLoad;
  /** Since when there has been room that was left to others; undefined when there is none. */
  #sinceMs: number | undefined;

  constructor(fleet: FleetUsage, others: OthersLoad) {
    this.#fleet = fleet;
    this.#others = others;
  }

  /** @returns whether the request has to wait for the sake of others */
  mustWait({ className, standing, uncachedTokens, targets }: YieldCandidate<Target>, nowMs: number): boolean {
    const missing = standing - this.#fleet.neediest(className);
    if (missing <= uncachedTokens + yieldShare * standing || targets.some((target) => this.#isIdle(target))) {
      this.noRoom();
      return false;
    }
    this.#sinceMs ??= nowMs;
    if (nowMs - this.#sinceMs <= mostYieldMs) return true;
    this.noRoom();
    return false;
  }

  /** There is no room any more. */
  noRoom(): void {
    this.#sinceMs = undefined;
  }

  #isIdle({ index, load }: Target): boolean {
    return load.pendingPrefillTokens === 0 && (this.#others.pendingPrefillTokens[index] ?? 0) === 0;
  }
}
