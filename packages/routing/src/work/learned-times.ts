import type { FitSums } from "./least-squares.ts";

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
  /** By its own samples: what is told to routers that take no sums. */
  readonly fit: PrefillFit;
  /** Of those samples, each a share of what was expected of it. */
  readonly sums: FitSums;
  /** 0 where nothing is known. */
  readonly msPerOutputToken: number;
  /** Answers that this is the mean of. */
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
  /** Of prompts, for the one coefficient that this is. */
  readonly sums: FitSums;
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

/**
 * Sums of samples that say what a fit says, for routers that tell no more than that: a quarter each of cold prompts from five
 * hundred to 32,000 tokens.
 */
export function sumsOfFit(fit: PrefillFit, weight: number): FitSums {
  const matrix = new Float64Array(9);
  const right = new Float64Array(3);
  for (const kilotokens of toldKilotokens) {
    const ms = coldPromptMs(fit, kilotokens) + fit.fixedMs;
    const scale = 1 / (ms + errorFloorMs);
    const features = [kilotokens * scale, (kilotokens ** 2 / 2) * scale, scale];
    const part = weight / toldKilotokens.length;
    for (let row = 0; row < 3; row++) {
      right[row]! += part * features[row]! * ms * scale;
      for (let column = 0; column < 3; column++) matrix[3 * row + column]! += part * features[row]! * features[column]!;
    }
  }
  return { matrix, right, weight };
}

/** The same of fetching: of prompts that fetch some thousand tokens. */
export function sumsOfFetch(msPerKilotoken: number, weight: number): FitSums {
  const kilotokens = 4;
  const ms = kilotokens * msPerKilotoken;
  const feature = kilotokens / (ms + errorFloorMs);
  return { matrix: [weight * feature ** 2], right: [weight * feature ** 2 * msPerKilotoken], weight };
}

/** Errors of a sample count by their share of what was expected of it and this. */
export const errorFloorMs = 10;
/** A sample is taken to be off by no more. */
export const outlierBound = 3;
/** To begin with: an engine of 8,000 tokens a second. */
export const believedFit: PrefillFit = { msPerKilotoken: 125, msPerMegapair: 1, fixedMs: 20 };
/** More samples are as good as these. */
export const maxSamples = 1_000;

/**
 * Whether this can be so. No engine computes a thousand tokens in less than 0.1 ms or more than 100 s; nothing is negative or
 * endless; and sums are those of samples.
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
    targets.every(({ log, known }) => Math.abs(log) <= maxLog && isAmount(known, 1)) &&
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
 * Features and values of samples are above zero, so all sums are, and the matrix is positive semidefinite. A value is no more
 * than `outlierBound` times what was expected, as a share of that: by the inequality of Cauchy and Schwarz that bounds its
 * sums with the features. And the whole must speak of a speed that engines can have.
 */
function areSumsOfSamples({ matrix, right, weight }: FitSums): boolean {
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
  const { msPerKilotoken: x, msPerMegapair: y, fixedMs: z } = believedFit;
  const pull = a * x * x + d * y * y + f * z * z + 2 * (b * x * y + c * x * z + e * y * z);
  const speedMs = ((x * right[0]! + y * right[1]! + z * right[2]!) / pull) * x;
  return speedMs >= leastReferenceMs && speedMs <= maxTermMs;
}

const toldKilotokens = [0.5, 2, 8, 32] as const;
const leastReferenceMs = 0.1;
const maxTermMs = 100_000;
/** Sums that are larger are of no engine, and would not be exact. */
const maxSum = 1e12;
const rounding = 1e-9;
/** Notes round weights. */
const leastWeight = 0.1;
/** A target is not told to be slower or faster than a hundred times the others. */
const maxLog = Math.log(100);

function isAmount(value: number, most: number): boolean {
  return value >= 0 && value <= most;
}

/** Where blocks of a prompt may be instead of in the GPU's memory. */
export const slowTiers = ["cpu", "disk", "external"] as const;

export type SlowTier = (typeof slowTiers)[number];

/** Tokens of a prompt that an engine has to bring back from each. */
export type FetchedTokens = Readonly<Record<SlowTier, number>>;
