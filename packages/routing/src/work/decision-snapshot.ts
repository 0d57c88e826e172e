import type { CandidateSet } from "@espalier/policies";
import type { SharedLoad } from "@espalier/shared-tree";
import type { RoutingTarget } from "../routing-target.ts";
import type { PoolWork } from "./pool-work.ts";
import type { PrefillRates } from "./prefill-rates.ts";

/** A pool at the time of one decision. Reads once what all of its engines share. */
export class DecisionSnapshot {
  readonly #pool: PoolWork;
  readonly #shared: SharedLoad;
  /** Time of the decision, on the monotonic clock. */
  readonly nowMs: number;
  /** Expected times at a target of factor 1. */
  readonly #expected: Pick<PrefillRates, "msPerToken" | "msPerTokenPair" | "fixedMs" | "isLearned">;
  #described = 0;
  #sentWork = 0;

  constructor(pool: PoolWork, shared: SharedLoad, nowMs: number) {
    const { msPerToken, msPerTokenPair, fixedMs, isLearned } = pool.rates;
    this.#pool = pool;
    this.#shared = shared;
    this.nowMs = nowMs;
    this.#expected = { msPerToken, msPerTokenPair, fixedMs, isLearned };
  }

  /** Writes the target's backlog and its expected times. The prompt's matches must be written first. */
  describe(candidates: CandidateSet, index: number, target: RoutingTarget): void {
    const expected = this.#expected;
    const { rates, busy } = this.#pool;
    const factor = rates.factorOf(target);
    candidates.prefillMsPerToken[index] = factor * expected.msPerToken;
    candidates.prefillMsPerTokenPair[index] = factor * expected.msPerTokenPair;
    if (candidates.matchedCpuTokens[index]! > 0) {
      candidates.cpuFetchMsPerToken[index] = this.#pool.fetchMsPerToken(target, "cpu");
    }
    if (candidates.matchedDiskTokens[index]! > 0) {
      candidates.diskFetchMsPerToken[index] = this.#pool.fetchMsPerToken(target, "disk");
    }
    if (candidates.matchedExternalTokens[index]! > 0) {
      candidates.externalFetchMsPerToken[index] = this.#pool.fetchMsPerToken(target, "external");
    }
    if (candidates.pullProtocol[index]! > 0) {
      candidates.pullMsPerToken[index] = this.#pool.fetchMsPerToken(target, "peer");
    }
    candidates.backlogMs[index] = this.#backlogMs(target);
    busy.receive(target.index, this.#shared, this.nowMs);
    this.#sentWork += busy.sentTo(target.index);
    this.#described++;
  }

  /** Share of the time that the described targets spend on prefill, 0 to `maxBusyShare`. */
  get busyShare(): number {
    return this.#pool.busy.of(this.#sentWork, this.#described);
  }

  /**
   * Milliseconds until a target has computed all prompts sent to it, by dead reckoning: the expected time of these
   * prompts and of their step, minus the time since the target last finished a prompt, or since it began. A prompt that is
   * sent now arrives half a round trip later, and that one was finished half a round trip before it was heard of.
   */
  #backlogMs({ index, load, networkMs }: RoutingTarget): number {
    const shared = this.#shared;
    let { pendingWorkMs, pendingSinceMs, computedMs } = load;
    computedMs -= networkMs || 0;
    if (index < shared.inFlight.length) {
      pendingWorkMs += shared.pendingWorkMs[index]!;
      pendingSinceMs = Math.min(pendingSinceMs, shared.pendingSinceMs[index]!);
      computedMs = Math.max(computedMs, shared.computedMs[index]!);
    }
    if (pendingWorkMs <= 0) return 0;
    const doneMs = Math.max(0, this.nowMs - Math.max(pendingSinceMs, computedMs));
    const { fixedMs, isLearned } = this.#expected;
    if (!isLearned) return this.#pool.unlearned.leftMs(pendingWorkMs, fixedMs, doneMs);
    const leftMs = Math.min(pendingWorkMs, pendingWorkMs + fixedMs - doneMs);
    return Math.max(leastLeft * pendingWorkMs, leftMs);
  }
}

/** Share of overdue work that still counts as backlog. */
const leastLeft = 0.05;

/**
 * A lower bound on how slow the engines are before any prompt is answered. All engines count as equal, so each will
 * take at least as long as the slowest prompt has taken so far. This also keeps the prompt that began last from being
 * expected to end first.
 */
export class UnlearnedPace {
  #slowest = { doneMs: 0, expectedMs: 1 };

  /**
   * Milliseconds of work left. Overdue work counts as taking as long again.
   *
   * @param workMs expected time
   * @param fixedMs overhead of a step
   * @param doneMs time since computing began
   */
  leftMs(workMs: number, fixedMs: number, doneMs: number): number {
    const expectedMs = workMs + fixedMs;
    if (doneMs * this.#slowest.expectedMs > this.#slowest.doneMs * expectedMs) this.#slowest = { doneMs, expectedMs };
    const takesMs = Math.max(expectedMs, (2 * this.#slowest.doneMs * expectedMs) / this.#slowest.expectedMs);
    return Math.min((takesMs * workMs) / expectedMs, takesMs - doneMs);
  }
}
