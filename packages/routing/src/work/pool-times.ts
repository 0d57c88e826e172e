import type { AnswerPace } from "./answer-pace.ts";
import { type FetchBelief, type FetchRates, usualFetch } from "./fetch-rates.ts";
import { featuresOf, type PrefillRates, type PromptPart, type PromptStep, type RatedTarget } from "./prefill-rates.ts";
import type { SlowTier } from "./slow-tiers.ts";
import { UnlearnedPace } from "./unlearned-pace.ts";

export interface PoolTimesParts {
  readonly rates: PrefillRates;
  readonly pace: AnswerPace;
  readonly fetches: FetchRates;
}

/** What is expected of the pool's engines at one moment, for whoever asks for many of them; at a target of factor 1. */
export interface TimesMoment {
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
