import type { PrefillFit } from "./learned-times.ts";
import { NonNegativeFit } from "./least-squares.ts";
import type { FetchedTokens } from "./slow-tiers.ts";

/** What a prompt asks of a target's engine. */
export interface PromptPart {
  /** Tokens to compute. */
  readonly uncachedTokens: number;
  /** Tokens before them that need no computing, but are attended to. */
  readonly matchedTokens: number;
  /** Those of them that have to be brought back to the GPU first; undefined where none have. */
  readonly fetched?: FetchedTokens | undefined;
}

/** A prompt and those that are computed in the same step. */
export interface PromptStep extends PromptPart {
  /** Prompts that were computed in the same step, so that the time is of all of them. */
  readonly beside?: readonly PromptPart[];
}

/** How long a prompt took. */
export interface PrefillSample extends PromptStep {
  /** From when its engine could begin with it until its first token. */
  readonly elapsedMs: number;
  /** Whether others were before it, which blurs when its engine began. */
  readonly hasWaited: boolean;
}

/** A target by its place in this process and by its name, which tells it from one that had the place before. */
export interface RatedTarget {
  readonly index: number;
  readonly key: string;
}

/** What is known of one target. */
export interface RatedDifference {
  /** Logarithm of what it takes over what the pool's fit says, smoothed from 0 on. */
  readonly log: number;
  /** The share of `log` that is of samples, and not of the 0 which it began with, 0 to below 1. */
  readonly known: number;
}

interface TargetRatio extends RatedDifference {
  readonly key: string;
  log: number;
  known: number;
}

const nothingKnown: RatedDifference = { log: 0, known: 0 };

/**
 * What prefill costs at each target of a pool, learned from the times to first tokens. One fit serves the pool, for its
 * engines are of one model and mostly alike; a target whose times are off it by a lasting factor gets that factor.
 */
export class PrefillRates {
  #fit = believedFit(1);
  /** Samples of the beginning, until there are `startSamples`. */
  #first: PrefillSample[] | undefined = [];
  readonly #ratios: (TargetRatio | undefined)[] = [];
  #samples = 0;

  /** For a token of the prompt, at a target of factor 1. */
  get msPerToken(): number {
    return this.#fit.coefficients[0]! / 1e3;
  }

  /** For a token of the prompt and one before it that it attends to, at a target of factor 1. */
  get msPerTokenPair(): number {
    return this.#fit.coefficients[1]! / 1e6;
  }

  /** What a first token takes besides computing its prompt: a step that runs already, and the way there and back. */
  get fixedMs(): number {
    return this.#fit.coefficients[2]!;
  }

  get samples(): number {
    return this.#samples;
  }

  /** Samples that the fit rests on: those of long ago, and those that are doubted, count for less. */
  get weight(): number {
    return this.#fit.weight;
  }

  /** In milliseconds. */
  get fit(): PrefillFit {
    const [msPerKilotoken, msPerMegapair, fixedMs] = this.#fit.coefficients;
    return { msPerKilotoken: msPerKilotoken!, msPerMegapair: msPerMegapair!, fixedMs: fixedMs! };
  }

  /** As it is now: what is handed out changes with each sample. */
  differenceOf({ index, key }: RatedTarget): RatedDifference {
    const ratio = this.#ratios[index];
    return ratio?.key === key ? ratio : nothingKnown;
  }

  /** Every target that something is known of. */
  *differences(): Generator<RatedDifference & { readonly key: string }, void, undefined> {
    for (const ratio of this.#ratios) if (ratio) yield { ...ratio };
  }

  /** What a target takes over what the pool's engines take; 1 unless it is known to differ. */
  factorOf({ index, key }: RatedTarget): number {
    const known = this.#ratios[index];
    return known?.key === key ? factorOfLog(known.log) : 1;
  }

  /** Milliseconds of computing, without what a first token takes besides. */
  workMs(target: RatedTarget, { uncachedTokens, matchedTokens }: PromptPart): number {
    const pairs = uncachedTokens * (matchedTokens + uncachedTokens / 2);
    return this.factorOf(target) * (this.msPerToken * uncachedTokens + this.msPerTokenPair * pairs);
  }

  /** Of a target at a place from `maxRatedTargets` on only the pool learns. */
  observe(target: RatedTarget, sample: PrefillSample): void {
    const [tokens, pairs] = featuresOf(sample);
    if (!(sample.elapsedMs >= 0 && sample.elapsedMs + tokens + pairs < Number.POSITIVE_INFINITY)) return;
    this.#samples++;
    if (this.#first) this.#begin(this.#first, sample);
    else this.#goOn(target, sample);
  }

  /**
   * The first samples are judged together, for what is believed may be far off, and so may any of them: an engine's first
   * prompts take long. The fit is made anew around the median of how far they are off, the belief counted in.
   */
  #begin(first: PrefillSample[], sample: PrefillSample): void {
    first.push(sample);
    const believed = believedFit(1);
    const ratios = [1, ...first.map((one) => ratioOf(one, believed, 1))].sort((one, other) => one - other);
    const fit = believedFit(Math.max(leastScale, ratios[Math.floor((ratios.length - 1) / 2)]!));
    // What each is compared with must not move on the way.
    const parts = first.map((one) => ({ one, expectedMs: expectedMsOf(one, fit) }));
    for (const { one, expectedMs } of parts) learn(fit, one, { expectedMs, ratio: one.elapsedMs / expectedMs });
    this.#fit = fit;
    if (first.length === startSamples) this.#first = undefined;
  }

  #goOn(target: RatedTarget, sample: PrefillSample): void {
    const factor = this.factorOf(target);
    const ratio = ratioOf(sample, this.#fit, factor);
    learn(this.#fit, sample, { expectedMs: expectedMsOf(sample, this.#fit), ratio });
    if (!sample.hasWaited) this.#noteRatio(target, Math.log(ratio * factor));
  }

  #noteRatio({ index, key }: RatedTarget, log: number): void {
    if (index >= maxRatedTargets) return;
    let known = this.#ratios[index];
    if (known?.key !== key) {
      known = { key, log: 0, known: 0 };
      this.#ratios[index] = known;
    }
    known.log += ratioGain * Math.max(-ratioStep, Math.min(ratioStep, log - known.log));
    known.known += ratioGain * (1 - known.known);
  }
}

/** What a target takes over others: 1 unless it differs by more than chance does. */
export function factorOfLog(log: number): number {
  return Math.abs(log) > likeness ? Math.exp(log) : 1;
}

/** Targets of a higher place are taken to be like their pool. */
export const maxRatedTargets = 4_096;

/** To begin with: an engine of 8,000 tokens a second. */
const believed = { msPerKilotoken: 125, msPerMegapair: 1, fixedMs: 20 };
/**
 * By how much of a sample each of these is held. At some engines the last two are, beside the first, ten times what is believed:
 * held by one, they would not get there in hundreds of prompts, and a prompt of 100,000 tokens would be taken for half of what it is.
 */
const beliefFirmness = [1, 0.03, 0.1] as const;
const startSamples = 16;
/** No engine is faster than a thousand times what is believed. */
const leastScale = 0.001;
/** 500 samples later one counts by a third. */
const memory = 0.998;
/** A sample is taken to be off by no more. */
const outlierBound = 3;
/** Logarithm up to which a sample is off by chance; beyond it samples pull no harder (Huber's loss). */
const usualError = 0.25;
const errorFloorMs = 10;
const waitedWeight = 0.2;
/** A lasting difference below this (e^0.2: 22 %) is not told from chance: engines that are alike must look alike. */
const likeness = 0.2;
const ratioGain = 0.05;
/** A sample moves the logarithm of a target's factor by no more than if it were off by this. */
const ratioStep = 0.5;

function believedFit(scale: number): NonNegativeFit {
  const { msPerKilotoken, msPerMegapair, fixedMs } = believed;
  const belief = [scale * msPerKilotoken, scale * msPerMegapair, scale * fixedMs] as const;
  return new NonNegativeFit(belief, beliefFirmness, memory);
}

function expectedMsOf(sample: PrefillSample, fit: NonNegativeFit): number {
  return Math.max(1, fit.value(...featuresOf(sample)));
}

/** How far a sample is off. */
function ratioOf(sample: PrefillSample, fit: NonNegativeFit, factor: number): number {
  return sample.elapsedMs / (factor * expectedMsOf(sample, fit));
}

/** @param ratio of what the sample took to what was expected of its target */
function learn(
  fit: NonNegativeFit,
  sample: PrefillSample,
  { expectedMs, ratio }: { readonly expectedMs: number; readonly ratio: number },
): void {
  const bounded = Math.min(outlierBound, Math.max(1 / outlierBound, ratio));
  // Errors count by their share of the whole: what matters of a long prompt is not a few milliseconds.
  const scale = 1 / (expectedMs + errorFloorMs);
  const [one, two, three] = featuresOf(sample);
  const trust = Math.min(1, usualError / Math.abs(Math.log(bounded)));
  const weight = trust * (sample.hasWaited ? waitedWeight : 1);
  fit.add([one * scale, two * scale, three * scale], bounded * expectedMs * scale, weight);
}

/** By which a fit's three products are multiplied: thousand tokens, million pairs, and one. */
export function featuresOf({ uncachedTokens, matchedTokens, beside = [] }: PromptStep): [number, number, number] {
  let tokens = 0;
  let pairs = 0;
  for (const part of [{ uncachedTokens, matchedTokens }, ...beside]) {
    tokens += part.uncachedTokens;
    pairs += part.uncachedTokens * (part.matchedTokens + part.uncachedTokens / 2);
  }
  return [tokens / 1e3, pairs / 1e6, 1];
}
