import type { Clock } from "@espalier/common";
import type { AnswerPace } from "./answer-pace.ts";
import { type FetchBelief, type FetchRate, type FetchRates, usualFetch } from "./fetch-rates.ts";
import { type FleetTimes, halfLives, type MergedFetch } from "./fleet-times.ts";
import { coldPromptMs, type PrefillFit, referenceKilotokens } from "./learned-times.ts";
import {
  factorOfLog,
  featuresOf,
  type PrefillRates,
  type PromptPart,
  type PromptStep,
  type RatedTarget,
} from "./prefill-rates.ts";
import type { SlowTier } from "./slow-tiers.ts";

export interface PoolTimesParts {
  /** What this router has learned itself. */
  readonly rates: PrefillRates;
  readonly pace: AnswerPace;
  readonly fetches: FetchRates;
  /** What others have. */
  readonly fleet: FleetTimes;
  readonly clock: Clock;
}

/** Others count for no more prompts than these, however many they have seen: soon what is seen here counts for more. */
export const maxTrust = 32;
/** The same of what fetching takes, which is learned from fewer. */
export const maxFetchTrust = 8;
/** How long what follows from ages is kept. */
const agesMs = 1_000;

/** So that a fit that says that nothing takes any time can be compared with others. */
const leastMs = 1e-3;

interface Blend {
  readonly fit: PrefillFit;
  /** Logarithms of what the own fit, and that of the others, say over what `fit` says. */
  readonly ownShift: number;
  readonly fleetShift: number;
  /** What is left of what this router knows, by age. */
  readonly ownLeft: number;
}

/** What is expected of the pool's engines at one moment, for whoever asks for many of them. */
export interface TimesMoment {
  readonly blend: Blend | undefined;
  /** Milliseconds for a token of a prompt, at a target of factor 1. */
  readonly msPerToken: number;
  /** Milliseconds for a token and one before it that it attends to, at a target of factor 1. */
  readonly msPerTokenPair: number;
  /** Milliseconds that a first token takes besides. */
  readonly fixedMs: number;
  /** Whether anybody has learned anything of the pool; what is said before is believed. */
  readonly isLearned: boolean;
}

/** Milliseconds for a thousand tokens from a tier, NaN where nothing is known. */
interface BlendedFetch {
  /** By what this router has seen alone. */
  readonly ownMs: number;
  readonly ms: number;
  /** Before anything was known. */
  readonly believedMs: number;
}

/**
 * What work is expected to take at the targets of a pool: as this router has learned, and as others have as far as it has not.
 * A router that has just come starts from what they know; where there are none, it is what it has learned itself.
 */
export class PoolTimes {
  readonly #parts: PoolTimesParts;
  #blend: Blend | undefined;
  #seenSamples = -1;
  #seenVersion = -1;
  #blendedMs = Number.NEGATIVE_INFINITY;
  #fetches: Readonly<Record<SlowTier, BlendedFetch>> | undefined;
  #fetchSamples = -1;
  #fetchVersion = -1;
  #fetchedMs = Number.NEGATIVE_INFINITY;
  /** When this router learned something last. */
  #learnedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: PoolTimesParts) {
    this.#parts = parts;
  }

  /** Milliseconds for a token of a prompt, at a target of factor 1. */
  get msPerToken(): number {
    return this.#blended ? this.#blended.fit.msPerKilotoken / 1e3 : this.#parts.rates.msPerToken;
  }

  /** Milliseconds for a token and one before it that it attends to, at a target of factor 1. */
  get msPerTokenPair(): number {
    return this.#blended ? this.#blended.fit.msPerMegapair / 1e6 : this.#parts.rates.msPerTokenPair;
  }

  /** Milliseconds that an answer takes for each token after its first; 0 where nobody knows. */
  get msPerOutputToken(): number {
    const { pace, fleet } = this.#parts;
    const told = fleet.merged?.msPerOutputToken ?? 0;
    if (told === 0) return pace.msPerToken;
    if (pace.answers === 0) return told;
    const trust = Math.min(maxTrust, fleet.answers);
    return (pace.answers * pace.msPerToken + trust * told) / (pace.answers + trust);
  }

  /** Since this router learned something of the pool; endless before the first time. */
  get ownAgeMs(): number {
    return this.#parts.clock.nowMs() - this.#learnedMs;
  }

  /** This router learns something now. */
  learns(): void {
    this.#learnedMs = this.#parts.clock.nowMs();
  }

  /** What is expected now. */
  moment(): TimesMoment {
    const blend = this.#blended;
    const { rates } = this.#parts;
    return {
      blend,
      msPerToken: blend ? blend.fit.msPerKilotoken / 1e3 : rates.msPerToken,
      msPerTokenPair: blend ? blend.fit.msPerMegapair / 1e6 : rates.msPerTokenPair,
      fixedMs: blend ? blend.fit.fixedMs : rates.fixedMs,
      isLearned: blend !== undefined || rates.samples > 0,
    };
  }

  /** What a target takes over what the pool's engines take; 1 unless it is known to differ. */
  factorOf(target: RatedTarget): number {
    return this.factorAt(target, this.moment());
  }

  /** The same, of a moment that was asked for before. */
  factorAt(target: RatedTarget, { blend }: TimesMoment): number {
    const { rates, fleet } = this.#parts;
    if (!blend) return rates.factorOf(target);
    const { log, known } = rates.differenceOf(target);
    const told = fleet.merged?.differences.get(target.key);
    const others = told ? told.log + told.known * blend.fleetShift : 0;
    const { ownLeft, ownShift } = blend;
    return factorOfLog(ownLeft * (log + known * ownShift) + (1 - ownLeft * known) * others);
  }

  /** Milliseconds of computing, without what a first token takes besides. */
  workMs(target: RatedTarget, { uncachedTokens, matchedTokens }: PromptPart): number {
    const pairs = uncachedTokens * (matchedTokens + uncachedTokens / 2);
    const now = this.moment();
    return this.factorAt(target, now) * (now.msPerToken * uncachedTokens + now.msPerTokenPair * pairs);
  }

  /** Milliseconds until a first token, if nothing is before it and nothing has to be fetched. */
  firstTokenMs(target: RatedTarget, step: PromptStep): number {
    const [kilotokens, megapairs] = featuresOf(step);
    const { msPerKilotoken, msPerMegapair, fixedMs } = this.#blended?.fit ?? this.#parts.rates.fit;
    return this.factorOf(target) * (msPerKilotoken * kilotokens + msPerMegapair * megapairs + fixedMs);
  }

  /** What is believed of tiers before anything is learned. */
  get fetchBelief(): FetchBelief {
    return usualFetch(this.msPerToken);
  }

  /** Milliseconds for a token that a target brings back from a tier; NaN where nobody knows. */
  fetchMsPerToken(target: RatedTarget, tier: SlowTier): number {
    const { ownMs, ms, believedMs } = this.#fetched[tier];
    return (this.#parts.fetches.factorOf(target, tier, { pool: ownMs, unit: believedMs }) * ms) / 1e3;
  }

  get #fetched(): Readonly<Record<SlowTier, BlendedFetch>> {
    const { fetches, fleet, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const isSame = fetches.samples === this.#fetchSamples && fleet.version === this.#fetchVersion;
    if (this.#fetches && isSame && nowMs - this.#fetchedMs < agesMs) return this.#fetches;
    this.#fetchSamples = fetches.samples;
    this.#fetchVersion = fleet.version;
    this.#fetchedMs = nowMs;
    const belief = this.fetchBelief;
    const of = (tier: SlowTier): BlendedFetch => ({
      ...blendFetches(fetches.rateOf(tier, belief), fleet.merged?.fetches.get(tier), nowMs),
      believedMs: belief[tier],
    });
    this.#fetches = { cpu: of("cpu"), disk: of("disk"), external: of("external") };
    return this.#fetches;
  }

  /** Undefined where no other router has told anything. */
  get #blended(): Blend | undefined {
    const { rates, fleet, clock } = this.#parts;
    const { merged } = fleet;
    if (!merged) return undefined;
    const nowMs = clock.nowMs();
    const isSame = rates.samples === this.#seenSamples && fleet.version === this.#seenVersion;
    if (this.#blend && isSame && nowMs - this.#blendedMs < agesMs) return this.#blend;
    this.#seenSamples = rates.samples;
    this.#seenVersion = fleet.version;
    this.#blendedMs = nowMs;
    const trust = Math.min(maxTrust, fleet.samples);
    const ownLeft = halfLives(nowMs - this.#learnedMs);
    const own = rates.weight * ownLeft;
    const share = trust + own > 0 ? trust / (trust + own) : 0;
    this.#blend = { ...blendOf(rates.fit, merged.fit, share), ownLeft };
    return this.#blend;
  }
}

function blendOf(own: PrefillFit, others: PrefillFit, share: number): Omit<Blend, "ownLeft"> {
  const between = (one: number, other: number): number => one + share * (other - one);
  const fit = {
    msPerKilotoken: between(own.msPerKilotoken, others.msPerKilotoken),
    msPerMegapair: between(own.msPerMegapair, others.msPerMegapair),
    fixedMs: between(own.fixedMs, others.fixedMs),
  };
  const speedOf = (one: PrefillFit): number => Math.max(leastMs, coldPromptMs(one, referenceKilotokens));
  const shiftOf = (one: PrefillFit): number => Math.log(speedOf(one) / speedOf(fit));
  return { fit, ownShift: shiftOf(own), fleetShift: shiftOf(others) };
}

/** What is told counts as it does for computing: for no more samples than the bound, and less with age, as the own does. */
function blendFetches(
  own: FetchRate | undefined,
  told: MergedFetch | undefined,
  nowMs: number,
): Omit<BlendedFetch, "believedMs"> {
  const ownMs = own?.msPerKilotoken ?? Number.NaN;
  if (!told) return { ownMs, ms: ownMs };
  if (!own) return { ownMs, ms: told.msPerKilotoken };
  const trust = Math.min(maxFetchTrust, told.samples * halfLives(nowMs - told.learnedMs));
  const weight = own.weight * halfLives(nowMs - own.learnedMs);
  const share = trust + weight > 0 ? trust / (trust + weight) : 0;
  return { ownMs, ms: ownMs + share * (told.msPerKilotoken - ownMs) };
}
