import { type SampleSums, sumsOf } from "@espalier/core";
import { speedOf } from "./merge-sums.ts";
import { errorFloorMs, outlierBound } from "./sample-error.ts";

/** Time to first token at any engine of a pool: a sum of three products. */
export interface PrefillFit {
  /** For a thousand tokens to compute. */
  readonly msPerKilotoken: number;
  /** For a million pairs of such a token and an earlier one that it attends to. */
  readonly msPerMegapair: number;
  readonly fixedMs: number;
}

/** What a router has learned about the engines of one pool from its own requests alone. */
export interface LearnedTimes {
  /** The fit of its own samples, for routers that do not accept sums. */
  readonly fit: PrefillFit;
  /** Sums of those samples, each relative to its expected value. */
  readonly sums: SampleSums;
  /** 0 if unknown. */
  readonly msPerOutputToken: number;
  /** Number of answers in this mean. */
  readonly answers: number;
  /** Time since the latest sample of all. */
  readonly ageMs: number;
  /** Targets with samples. */
  readonly targets: readonly LearnedTarget[];
  /** Tiers from which fetches were seen. */
  readonly fetches: readonly LearnedFetch[];
}

/** Time to fetch blocks from a tier. */
export interface LearnedFetch {
  readonly tier: SlowTier;
  readonly msPerKilotoken: number;
  /** Sums of prompts, for this one coefficient. */
  readonly sums: SampleSums;
  /** Time since the latest of them. */
  readonly ageMs: number;
}

/** How one target differs from the fit; see `RatedDifference`. */
export interface LearnedTarget {
  readonly key: string;
  readonly log: number;
  readonly known: number;
}

/** Milliseconds that a fit predicts for computing a cold prompt of this many thousand tokens. Used to compare fits. */
export function coldPromptMs({ msPerKilotoken, msPerMegapair }: PrefillFit, kilotokens: number): number {
  return msPerKilotoken * kilotokens + (msPerMegapair * kilotokens ** 2) / 2;
}

/**
 * Sums of samples that agree with a fit, for routers that publish only the fit: a quarter of the weight each for four
 * cold prompts from 500 to 32,000 tokens.
 */
export function sumsOfFit(fit: PrefillFit, weight: number): SampleSums {
  return sumsOf(
    reportedKilotokens.map((kilotokens) => {
      const ms = coldPromptMs(fit, kilotokens) + fit.fixedMs;
      const scale = 1 / (ms + errorFloorMs);
      const features = [kilotokens * scale, (kilotokens ** 2 / 2) * scale, scale];
      return { features, value: ms * scale, weight: weight / reportedKilotokens.length };
    }),
  );
}

/** The same for fetching: prompts that fetch some thousand tokens. */
export function sumsOfFetch(msPerKilotoken: number, weight: number): SampleSums {
  const kilotokens = 4;
  const square = weight * (kilotokens / (kilotokens * msPerKilotoken + errorFloorMs)) ** 2;
  return { matrix: [square], right: [square * msPerKilotoken], weight };
}

/** The prior: an engine of 8,000 tokens per second. */
const priorFit: PrefillFit = { msPerKilotoken: 125, msPerMegapair: 1, fixedMs: 20 };
/** The same as coefficients. */
export const priorScale = [priorFit.msPerKilotoken, priorFit.msPerMegapair, priorFit.fixedMs] as const;
/** More samples count as this many. */
export const maxSamples = 1_000;

/**
 * Checks that the times are possible. No engine takes less than 0.1 ms or more than 100 s for a thousand tokens;
 * nothing is negative or infinite; and the sums are sums of samples.
 */
export function isPlausible(times: LearnedTimes): boolean {
  const { fit, sums, msPerOutputToken, answers, ageMs, targets, fetches } = times;
  const referenceMs = coldPromptMs(fit, 1);
  return (
    isAmount(fit.msPerKilotoken, maxTermMs) &&
    isAmount(fit.msPerMegapair, maxTermMs) &&
    isAmount(fit.fixedMs, maxTermMs) &&
    referenceMs >= leastReferenceMs &&
    referenceMs <= maxTermMs &&
    isAmount(sums.weight, maxSamples) &&
    (sums.weight === 0 || areSumsOfSamples(sums)) &&
    isAmount(msPerOutputToken, maxTermMs) &&
    isAmount(answers, maxSamples) &&
    isAmount(ageMs, Number.MAX_SAFE_INTEGER) &&
    targets.every(({ log, known }) => Math.abs(log) <= Math.log(maxFactor) && isAmount(known, 1)) &&
    fetches.every(isPlausibleFetch)
  );
}

function isPlausibleFetch({ tier, msPerKilotoken, sums, ageMs }: LearnedFetch): boolean {
  const [matrix, right] = [sums.matrix[0]!, sums.right[0]!];
  return (
    slowTiers.includes(tier) &&
    isAmount(msPerKilotoken, maxTermMs) &&
    isAmount(sums.weight, maxSamples) &&
    isAmount(matrix, maxSum) &&
    isAmount(right, maxTermMs * matrix) &&
    isAmount(ageMs, Number.MAX_SAFE_INTEGER)
  );
}

/**
 * Features and values of samples are above zero, so all sums are, and the matrix is positive semidefinite. A value is
 * at most `outlierBound` times the expected one, relative to it: by the Cauchy-Schwarz inequality that bounds its sums
 * with the features. The total must also imply a speed that engines can have.
 */
function areSumsOfSamples({ matrix, right, weight }: SampleSums): boolean {
  const [a = Number.NaN, b = Number.NaN, c = Number.NaN, , d = Number.NaN, e = Number.NaN, , , f = Number.NaN] =
    Array.from(matrix);
  if (![a, b, c, d, e, f].every((entry) => isAmount(entry, maxSum))) return false;
  const hasMinor = (one: number, other: number, both: number): boolean => one * other * (1 + rounding) >= both ** 2;
  const determinant = a * (d * f - e * e) - b * (b * f - e * c) + c * (b * e - d * c);
  if (!hasMinor(a, d, b) || !hasMinor(a, f, c) || !hasMinor(d, f, e) || determinant < -rounding * a * d * f)
    return false;
  for (const [row, square] of [a, d, f].entries()) {
    if (!isAmount(right[row]!, outlierBound * Math.sqrt((weight + leastWeight) * square) * (1 + rounding)))
      return false;
  }
  const speedMs = speedOf({ matrix, right }, priorScale).speed * priorFit.msPerKilotoken;
  return speedMs >= leastReferenceMs && speedMs <= maxTermMs;
}

const reportedKilotokens = [0.5, 2, 8, 32] as const;
const leastReferenceMs = 0.1;
/** Largest time that another router may claim for a term. */
const maxTermMs = 100_000;
/** Larger sums belong to no engine, and would not be exact. */
const maxSum = 1e12;
const rounding = 1e-9;
/** Notes round weights. */
const leastWeight = 0.1;
/** Largest published factor by which a target is slower or faster than the others. */
const maxFactor = 100;

function isAmount(value: number, most: number): boolean {
  return value >= 0 && value <= most;
}

/** Where blocks of a prompt may be instead of on the GPU. `peer` is the CPU memory of another engine. */
export const slowTiers = ["cpu", "disk", "external", "peer"] as const;

export type SlowTier = (typeof slowTiers)[number];

/** Tokens of a prompt that an engine must fetch from each tier. */
export type FetchedTokens = Readonly<Record<SlowTier, number>>;
