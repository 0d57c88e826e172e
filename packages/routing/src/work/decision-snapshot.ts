import type { CandidateSet } from "@espalier/policies";
import type { SharedLoad } from "@espalier/replication";
import type { RoutingTarget } from "../routing-target.ts";
import type { AnswerPace } from "./answer-pace.ts";
import type { BatchLimits } from "./batch-limits.ts";
import type { BusyShare } from "./busy-share.ts";
import { type FetchBelief, type FetchRates, usualFetch } from "./fetch-rates.ts";
import type { SlowTier } from "./learned-times.ts";
import { featuresOf, type PrefillRates, type PromptPart, type PromptStep, type RatedTarget } from "./prefill-rates.ts";

interface PoolMomentParts {
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

interface PoolTimesParts {
  readonly rates: PrefillRates;
  readonly pace: AnswerPace;
  readonly fetches: FetchRates;
}

/** What is expected of the pool's engines at one moment, for whoever asks for many of them; at a target of factor 1. */
interface TimesMoment {
  /** Milliseconds for a token of a prompt. */
  readonly msPerToken: number;
  /** Milliseconds for a token and one before it that it attends to. */
  readonly msPerTokenPair: number;
  /** What a first token takes besides computing its prompt. */
  readonly fixedMs: number;
  /** Whether anybody has learned anything of the pool. */
  readonly isLearned: boolean;
}

/** What work is expected to take at the targets of a pool, by what this router and others have learned. */
export class PoolTimes {
  /** Of what was sent before anything is learned. */
  readonly unlearned = new UnlearnedPace();
  readonly #parts: PoolTimesParts;

  constructor(parts: PoolTimesParts) {
    this.#parts = parts;
  }

  /** Milliseconds for a token of a prompt, at a target of factor 1. */
  get msPerToken(): number {
    return this.#parts.rates.msPerToken;
  }

  /** Milliseconds that an answer takes for each token after its first; 0 where nobody knows. */
  get msPerOutputToken(): number {
    return this.#parts.pace.msPerToken;
  }

  /** What is expected now. */
  moment(): TimesMoment {
    const { msPerToken, msPerTokenPair, fixedMs, isLearned } = this.#parts.rates;
    return { msPerToken, msPerTokenPair, fixedMs, isLearned };
  }

  /** What a target takes over what the pool's engines take; 1 unless it is known to differ. */
  factorOf(target: RatedTarget): number {
    return this.#parts.rates.factorOf(target);
  }

  /** Milliseconds of computing, without what a first token takes besides. */
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

  /** Milliseconds for a token that a target brings back from a tier; NaN where nobody knows. */
  fetchMsPerToken(target: RatedTarget, tier: SlowTier): number {
    return this.#parts.fetches.msPerKilotoken(target, tier, this.fetchBelief) / 1e3;
  }
}

/**
 * How slow engines must be of which no prompt has been answered yet. They are alike as far as anybody knows, so what the slowest has
 * taken by now all of them will: who began last is not the one that is done first.
 */
class UnlearnedPace {
  #slowest = { doneMs: 0, expectedMs: 1 };

  /**
   * How much of work is left.
   *
   * @param workMs what it should have taken
   * @param fixedMs what a step takes besides
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
