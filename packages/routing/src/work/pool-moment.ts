import type { CandidateSet } from "@espalier/policies";
import type { SharedLoad } from "@espalier/replication";
import type { RoutingTarget } from "../routing-target.ts";
import type { BatchLimits } from "./batch-limits.ts";
import type { BusyShare } from "./busy-share.ts";
import type { PoolTimes, TimesMoment } from "./pool-times.ts";

export interface PoolMomentParts {
  readonly times: PoolTimes;
  readonly busy: BusyShare;
  readonly limits: BatchLimits;
  readonly shared: SharedLoad;
  readonly nowMs: number;
}

/** A pool at the moment of a decision: what is the same for all of its engines is worked out once. */
export class PoolMoment {
  readonly #times: PoolTimes;
  readonly #busy: BusyShare;
  readonly #limits: BatchLimits;
  readonly #shared: SharedLoad;
  /** When the decision is made, on the monotonic clock. */
  readonly nowMs: number;
  readonly #expected: TimesMoment;
  #described = 0;
  #sentWork = 0;

  constructor({ times, busy, limits, shared, nowMs }: PoolMomentParts) {
    this.#times = times;
    this.#busy = busy;
    this.#limits = limits;
    this.#shared = shared;
    this.nowMs = nowMs;
    this.#expected = times.moment();
  }

  /**
   * Writes what the target has to do before a prompt that is sent now, and what it would need for that. What it holds of the
   * prompt is to be written before.
   */
  describe(candidates: CandidateSet, index: number, target: RoutingTarget): void {
    const expected = this.#expected;
    const times = this.#times;
    const factor = times.factorOf(target);
    candidates.prefillMsPerToken[index] = factor * expected.msPerToken;
    candidates.prefillMsPerTokenPair[index] = factor * expected.msPerTokenPair;
    if (candidates.matchedCpuTokens[index]! > 0) {
      candidates.cpuFetchMsPerToken[index] = times.fetchMsPerToken(target, "cpu");
    }
    if (candidates.matchedDiskTokens[index]! > 0) {
      candidates.diskFetchMsPerToken[index] = times.fetchMsPerToken(target, "disk");
    }
    if (candidates.matchedExternalTokens[index]! > 0) {
      candidates.externalFetchMsPerToken[index] = times.fetchMsPerToken(target, "external");
    }
    candidates.backlogMs[index] = this.#backlogMs(target);
    candidates.batchLimit[index] = this.#limits.of(target, this.nowMs);
    this.#busy.heard(target.index, this.#shared, this.nowMs);
    this.#sentWork += this.#busy.sentTo(target.index);
    this.#described++;
  }

  /** Which share of the time the described targets compute prompts, 0 to `maxBusyShare`. */
  get busyShare(): number {
    return this.#busy.of(this.#sentWork, this.#described);
  }

  /** Milliseconds that an answer takes for each token after its first; 0 where nobody knows. */
  get msPerOutputToken(): number {
    return this.#times.msPerOutputToken;
  }

  /**
   * Milliseconds until a target has computed all prompts that were sent to it, by dead reckoning: what was expected of them, and
   * of the step in which they are computed besides, less the time since it last was seen to finish one, or since it began.
   */
  #backlogMs({ index, load }: RoutingTarget): number {
    const shared = this.#shared;
    let { pendingWorkMs, pendingSinceMs, computedMs } = load;
    if (index < shared.inFlight.length) {
      pendingWorkMs += shared.pendingWorkMs[index]!;
      pendingSinceMs = Math.min(pendingSinceMs, shared.pendingSinceMs[index]!);
      computedMs = Math.max(computedMs, shared.computedMs[index]!);
    }
    if (pendingWorkMs <= 0) return 0;
    const doneMs = Math.max(0, this.nowMs - Math.max(pendingSinceMs, computedMs));
    const { fixedMs, isLearned } = this.#expected;
    if (!isLearned) return this.#times.unlearned.leftMs(pendingWorkMs, fixedMs, doneMs);
    const leftMs = Math.min(pendingWorkMs, pendingWorkMs + fixedMs - doneMs);
    return Math.max(leastLeft * pendingWorkMs, leftMs);
  }
}

/** Of work that was not done when it should have been, so much is still to come: something must be left of it. */
const leastLeft = 0.05;
