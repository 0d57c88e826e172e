import { type SlowTier, slowTiers } from "./slow-tiers.ts";

/** What a first token takes at any engine of a pool: a sum of three products. */
export interface PrefillFit {
  /** For a thousand tokens to compute. */
  readonly msPerKilotoken: number;
  /** For a million pairs of such a token and one before it that it attends to. */
  readonly msPerMegapair: number;
  readonly fixedMs: number;
}

/** What a router has learned of the engines of one pool, from its own requests alone. */
export interface LearnedTimes {
  readonly fit: PrefillFit;
  /** Prompts that the fit rests on. */
  readonly samples: number;
  /** 0 where nothing is known. */
  readonly msPerOutputToken: number;
  /** Answers that this rests on. */
  readonly answers: number;
  /** Since the latest of all these. */
  readonly ageMs: number;
  /** Targets that were seen. */
  readonly targets: readonly LearnedTarget[];
  /** Tiers that blocks were seen to be fetched from. */
  readonly fetches: readonly LearnedFetch[];
}

/** What it takes to bring blocks back from a tier. */
export interface LearnedFetch {
  readonly tier: SlowTier;
  readonly msPerKilotoken: number;
  /** Prompts that this rests on. */
  readonly samples: number;
  /** Since the latest of them. */
  readonly ageMs: number;
}

/** How one target differs from what the fit says; see `RatedDifference`. */
export interface LearnedTarget {
  readonly key: string;
  readonly log: number;
  readonly known: number;
}

/** Milliseconds of computing by a fit of a cold prompt of so many thousand tokens, by which fits are compared. */
export function coldPromptMs({ msPerKilotoken, msPerMegapair }: PrefillFit, kilotokens: number): number {
  return msPerKilotoken * kilotokens + (msPerMegapair * kilotokens ** 2) / 2;
}

/** The prompt by which the speeds of two fits are compared. */
export const referenceKilotokens = 1;

/**
 * Whether this can be so. No engine computes a thousand tokens in less than 0.1 ms or more than 100 s; nothing is negative or
 * endless.
 */
export function isPlausible(times: LearnedTimes): boolean {
  const { fit, samples, msPerOutputToken, answers, ageMs, targets, fetches } = times;
  const referenceMs = coldPromptMs(fit, referenceKilotokens);
  return (
    isAmount(fit.msPerKilotoken, maxTermMs) &&
    isAmount(fit.msPerMegapair, maxTermMs) &&
    isAmount(fit.fixedMs, maxTermMs) &&
    referenceMs >= leastReferenceMs &&
    referenceMs <= maxTermMs &&
    isAmount(samples, maxSamples) &&
    isAmount(msPerOutputToken, maxTermMs) &&
    isAmount(answers, maxSamples) &&
    isAmount(ageMs, Number.MAX_SAFE_INTEGER) &&
    targets.every(({ log, known }) => Math.abs(log) <= maxLog && isAmount(known, 1)) &&
    fetches.every(isPlausibleFetch)
  );
}

function isPlausibleFetch({ tier, msPerKilotoken, samples, ageMs }: LearnedFetch): boolean {
  return (
    slowTiers.includes(tier) &&
    isAmount(msPerKilotoken, maxTermMs) &&
    isAmount(samples, maxSamples) &&
    isAmount(ageMs, Number.MAX_SAFE_INTEGER)
  );
}

/** More samples are as good as these. */
export const maxSamples = 1_000;
const leastReferenceMs = 0.1;
const maxTermMs = 100_000;
/** A target is not told to be slower or faster than a hundred times the others. */
const maxLog = Math.log(100);

function isAmount(value: number, most: number): boolean {
  return value >= 0 && value <= most;
}
