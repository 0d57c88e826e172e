import type { Clock } from "@espalier/common";
import type { LoadGauge, SharedLoad } from "@espalier/replication";

/** One router's load of one target, as it tells it. */
export interface LoadReport extends LoadGauge {
  readonly router: number;
  readonly target: number;
}

interface LoadColumns {
  readonly inFlight: Float64Array;
  readonly pendingPrefillTokens: Float64Array;
  readonly decodeTokens: Float64Array;
  readonly pendingWorkMs: Float64Array;
  readonly activeTokens: Float64Array;
  readonly sentWorkMs: Float64Array;
  readonly computedMs: Float64Array;
  readonly pendingSinceMs: Float64Array;
}

function loadColumns(targets: number): LoadColumns {
  const column = (): Float64Array => new Float64Array(targets);
  return {
    inFlight: column(),
    pendingPrefillTokens: column(),
    decodeTokens: column(),
    pendingWorkMs: column(),
    activeTokens: column(),
    sentWorkMs: column(),
    computedMs: column().fill(Number.NEGATIVE_INFINITY),
    pendingSinceMs: column().fill(Number.POSITIVE_INFINITY),
  };
}

/**
 * What every router knows of the load that the others have sent: sums that change by what a report changes, for all
 * routers but the one it is of. Loads are whole numbers below 2^53, so that what was added and taken out leaves zero.
 */
export class LoadBoard {
  readonly #clock: Clock;
  readonly #sinceMs: number;
  /** By router: what the others were told of it, and when they last heard of each target. */
  readonly #told: readonly LoadColumns[];
  readonly #heardMs: readonly Float64Array[];
  /** By router: what the others have sent. */
  readonly #others: readonly LoadColumns[];

  constructor(size: { readonly routers: number; readonly targets: number }, clock: Clock) {
    const { routers, targets } = size;
    this.#clock = clock;
    this.#sinceMs = clock.nowMs();
    this.#told = Array.from({ length: routers }, () => loadColumns(targets));
    this.#heardMs = Array.from({ length: routers }, () => new Float64Array(targets));
    this.#others = Array.from({ length: routers }, () => loadColumns(targets));
  }

  /** A report has reached all other routers. */
  heard(report: LoadReport): void {
    const { router, target } = report;
    const told = this.#told[router]!;
    const inFlight = report.inFlight - told.inFlight[target]!;
    const pending = report.pendingPrefillTokens - told.pendingPrefillTokens[target]!;
    const decode = report.decodeTokens - told.decodeTokens[target]!;
    const work = report.pendingWorkMs - told.pendingWorkMs[target]!;
    const active = report.activeTokens - told.activeTokens[target]!;
    told.inFlight[target]! += inFlight;
    told.pendingPrefillTokens[target]! += pending;
    told.decodeTokens[target]! += decode;
    told.pendingWorkMs[target]! += work;
    told.activeTokens[target]! += active;
    const nowMs = this.#clock.nowMs();
    this.#heardMs[router]![target] = nowMs;
    for (let other = 0; other < this.#others.length; other++) {
      if (other === router) continue;
      const sums = this.#others[other]!;
      sums.inFlight[target]! += inFlight;
      sums.pendingPrefillTokens[target]! += pending;
      sums.decodeTokens[target]! += decode;
      sums.pendingWorkMs[target]! += work;
      sums.activeTokens[target]! += active;
      if (work > 0) sums.sentWorkMs[target]! += work;
      if (work < 0) sums.computedMs[target] = nowMs;
      if (sums.pendingWorkMs[target] === 0) sums.pendingSinceMs[target] = Number.POSITIVE_INFINITY;
      else if (sums.pendingSinceMs[target] === Number.POSITIVE_INFINITY) sums.pendingSinceMs[target] = nowMs;
    }
  }

  /** What a router knows that the others have sent. */
  seenBy(router: number): SharedLoad {
    const originCount = this.#told.length - 1;
    const ageMs = (target: number): number => this.#ageMs(router, target);
    return { ...this.#others[router]!, sinceMs: this.#sinceMs, originCount, ageMs };
  }

  #ageMs(router: number, target: number): number {
    let oldestMs = Number.POSITIVE_INFINITY;
    for (let other = 0; other < this.#told.length; other++) {
      if (other === router || this.#told[other]!.inFlight[target] === 0) continue;
      oldestMs = Math.min(oldestMs, this.#heardMs[other]![target]!);
    }
    return oldestMs === Number.POSITIVE_INFINITY ? 0 : this.#clock.nowMs() - oldestMs;
  }
}

/** What a router knows that nobody tells of load. */
export function createUnsharedLoad(): SharedLoad {
  return { ...loadColumns(0), sinceMs: 0, originCount: 0, ageMs: () => 0 };
}
