import type { CandidateSet } from "@espalier/policies";
import type { SharedLoad } from "@espalier/replication";
import type { RoutingTarget } from "../routing-target.ts";
import type { AnswerPace } from "./answer-pace.ts";
import type { BatchLimits } from "./batch-limits.ts";
import type { BusyShare } from "./busy-share.ts";
import { type FetchBelief, type FetchRates, usualFetch } from "./fetch-rates.ts";
import type { SlowTier } from "./learned-times.ts";
import { featuresOf, type PrefillRates, type PromptPart, type PromptStep, type RatedTarget } from "./prefill-rates.ts";

interface DecisionSnapshotParts {
  readonly times: PoolTimes;
  readonly busy: BusyShare;
  readonly limits: BatchLimits;
  readonly shared: SharedLoad;
  readonly nowMs: number;
}

/** A pool at the time of one decision: what is the same for all of its engines is computed once. */
export class DecisionSnapshot {
  readonly #times: PoolTimes;
  readonly #busy: BusyShare;
  readonly #limits: BatchLimits;
  readonly #shared: SharedLoad;
  /** When the decision is made, on the monotonic clock. */
  readonly nowMs: number;
  readonly #expected: ExpectedTimes;
  #described = 0;
  #sentWork = 0;

  constructor({ times, busy, limits, shared, nowMs }: DecisionSnapshotParts) {
    this.#times = times;
    this.#busy = busy;
    this.#limits = limits;
    this.#shared = shared;
    this.nowMs = nowMs;
    this.#expected = times.expected();
  }

  /** Writes the target's backlog and its expected times. The prompt's matches must be written before. */
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

  /** Share of the time that the described targets spend on prefill, 0 to `maxBusyShare`. */
  get busyShare(): number {
    return this.#busy.of(this.#sentWork, this.#described);
  }

  /** Milliseconds for each output token after the first; 0 while nothing is learned. */
  get msPerOutputToken(): number {
    return this.#times.msPerOutputToken;
  }

  /**
   * Milliseconds until a target has computed all prompts that were sent to it, by dead reckoning: their expected time and
   * that of their step, less the time since the target was last seen to finish a prompt, or since it began.
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

/** The share of overdue work that still counts as backlog. */
const leastLeft = 0.05;

interface PoolTimesParts {
  readonly rates: PrefillRates;
  readonly pace: AnswerPace;
  readonly fetches: FetchRates;
}

/** Expected times at a target of factor 1, read once for a whole decision. */
interface ExpectedTimes {
  /** Milliseconds for a token of a prompt. */
  readonly msPerToken: number;
  /** Milliseconds for a token and one before it that it attends to. */
  readonly msPerTokenPair: number;
  /** Overhead of a first token: a step that runs already, and the network. */
  readonly fixedMs: number;
  /** Whether any router has learned times of the pool. */
  readonly isLearned: boolean;
}

/** Expected times at the targets of a pool, from what this router and its peers have learned. */
export class PoolTimes {
  /** For prompts sent before anything is learned. */
  readonly unlearned = new UnlearnedPace();
  readonly #parts: PoolTimesParts;

  constructor(parts: PoolTimesParts) {
    this.#parts = parts;
  }

  /** Milliseconds for a token of a prompt, at a target of factor 1. */
  get msPerToken(): number {
    return this.#parts.rates.msPerToken;
  }

  /** Milliseconds for each output token after the first; 0 while nothing is learned. */
  get msPerOutputToken(): number {
    return this.#parts.pace.msPerToken;
  }

  /** Expected times now. */
  expected(): ExpectedTimes {
    const { msPerToken, msPerTokenPair, fixedMs, isLearned } = this.#parts.rates;
    return { msPerToken, msPerTokenPair, fixedMs, isLearned };
  }

  /** A target's times relative to those of the pool; 1 unless it is known to differ. */
  factorOf(target: RatedTarget): number {
    return this.#parts.rates.factorOf(target);
  }

  /** Milliseconds of computing, without the overhead of a first token. */
  workMs(target: RatedTarget, part: PromptPart): number {
    return this.#parts.rates.workMs(target, part);
  }

  /** Milliseconds until a first token, if nothing is before it and nothing has to be fetched. */
  firstTokenMs(target: RatedTarget, step: PromptStep): number {
    const [kilotokens, megapairs] = featuresOf(step);
    const { msPerKilotoken, msPerMegapair, fixedMs } = this.#parts.rates.fit;
    return this.factorOf(target) * (msPerKilotoken * kilotokens + msPerMegapair * megapairs + fixedMs);
  }

  /** What is believed of tiers before anything is learned. */
  get fetchBelief(): FetchBelief {
    return usualFetch(this.msPerToken);
  }

  /** Milliseconds to fetch a token from a tier; NaN while nothing is learned. */
  fetchMsPerToken(target: RatedTarget, tier: SlowTier): number {
    return this.#parts.fetches.msPerKilotoken(target, tier, this.fetchBelief) / 1e3;
  }
}

/**
 * A lower bound on how slow the engines are before any prompt is answered. They count as alike, so what the slowest prompt
 * has taken so far all of them will: the one that began last is not taken for the one that ends first.
 */
class UnlearnedPace {
  #slowest = { doneMs: 0, expectedMs: 1 };

  /**
   * How much of work is left.
   *
   * @param workMs what it should have taken
   * @param fixedMs overhead of a step
   * @param doneMs since when it is computed
   * @returns milliseconds; of work that took as long as expected or longer, as long again
   */
  leftMs(workMs: number, fixedMs: number, doneMs: number): number {
    const expectedMs = workMs + fixedMs;
    if (doneMs * this.#slowest.expectedMs > this.#slowest.doneMs * expectedMs) this.#slowest = { doneMs, expectedMs };
    const takesMs = Math.max(expectedMs, (2 * this.#slowest.doneMs * expectedMs) / this.#slowest.expectedMs);
    return Math.min((takesMs * workMs) / expectedMs, takesMs - doneMs);
  }
}
