import type { CandidateSet } from "@espalier/policies";
import type { SharedLoad } from "@espalier/shared-tree";
import type { RoutingTarget } from "../routing-target.ts";
import type { AnswerPace } from "./answer-pace.ts";
import type { BatchLimits } from "./batch-limits.ts";
import type { BusyShare } from "./busy-share.ts";
import { type FetchPrior, type FetchRates, priorFetch } from "./fetch-rates.ts";
import type { SlowTier } from "./learned-times.ts";
import { featuresOf, type PrefillRates, type PromptPart, type PromptStep, type RatedTarget } from "./prefill-rates.ts";

interface DecisionSnapshotParts {
  readonly times: PoolTimes;
  readonly busy: BusyShare;
  readonly limits: BatchLimits;
  readonly shared: SharedLoad;
  readonly nowMs: number;
}

/** A pool at the time of one decision. Computes once what all of its engines share. */
export class DecisionSnapshot {
  readonly #times: PoolTimes;
  readonly #busy: BusyShare;
  readonly #limits: BatchLimits;
  readonly #shared: SharedLoad;
  /** Time of the decision, on the monotonic clock. */
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

  /** Writes the target's backlog and its expected times. The prompt's matches must be written first. */
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
    if (candidates.pullProtocol[index]! > 0) {
      candidates.pullMsPerToken[index] = times.fetchMsPerToken(target, "peer");
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
    if (!isLearned) return this.#times.unlearned.leftMs(pendingWorkMs, fixedMs, doneMs);
    const leftMs = Math.min(pendingWorkMs, pendingWorkMs + fixedMs - doneMs);
    return Math.max(leastLeft * pendingWorkMs, leftMs);
  }
}

/** Share of overdue work that still counts as backlog. */
const leastLeft = 0.05;

interface PoolTimesParts {
  readonly rates: PrefillRates;
  readonly pace: AnswerPace;
  readonly fetches: FetchRates;
}

/** Expected times at a target of factor 1, read once per decision. */
interface ExpectedTimes {
  /** Milliseconds per prompt token. */
  readonly msPerToken: number;
  /** Milliseconds per token and earlier token that it attends to. */
  readonly msPerTokenPair: number;
  /** Overhead of a first token: the step in progress, and the network. */
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

  /** Milliseconds per prompt token, at a target of factor 1. */
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

  /** A target's times relative to those of the pool; 1 unless a difference is known. */
  factorOf(target: RatedTarget): number {
    return this.#parts.rates.factorOf(target);
  }

  /** Milliseconds of computing, without the overhead of a first token. */
  workMs(target: RatedTarget, part: PromptPart): number {
    return this.#parts.rates.workMs(target, part);
  }

  /** Milliseconds to a first token if no work is queued before it and nothing has to be fetched. */
  firstTokenMs(target: RatedTarget, step: PromptStep): number {
    const [kilotokens, megapairs] = featuresOf(step);
    const { msPerKilotoken, msPerMegapair, fixedMs } = this.#parts.rates.fit;
    return this.factorOf(target) * (msPerKilotoken * kilotokens + msPerMegapair * megapairs + fixedMs);
  }

  /** The prior of tiers. */
  get fetchPrior(): FetchPrior {
    return priorFetch(this.msPerToken);
  }

  /** Milliseconds to fetch a token from a tier; NaN while nothing is learned. */
  fetchMsPerToken(target: RatedTarget, tier: SlowTier): number {
    return this.#parts.fetches.msPerKilotoken(target, tier, this.fetchPrior) / 1e3;
  }
}

/**
 * A lower bound on how slow the engines are before any prompt is answered. All engines count as equal, so each will
 * take at least as long as the slowest prompt has taken so far. This also keeps the prompt that began last from being
 * expected to end first.
 */
class UnlearnedPace {
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
