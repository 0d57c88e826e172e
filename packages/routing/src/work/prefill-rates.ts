import type { FleetSums } from "./fleet-sums.ts";
import { believedFit, errorFloorMs, type FetchedTokens, outlierBound, type PrefillFit } from "./learned-times.ts";
import { addSums, type FitSums, NonNegativeFit } from "./least-squares.ts";
import { compare } from "./merge-sums.ts";

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
  readonly sameStep?: readonly PromptPart[];
}

/** How long a prompt took. */
export interface PrefillSample extends PromptStep {
  /** From when its engine could begin with it until its first token. */
  readonly elapsedMs: number;
  /** Whether others were before it, which blurs when its engine began. */
  readonly hasWaited: boolean;
}

/** A target by its index in this process, and its key, since indices are reused. */
export interface RatedTarget {
  readonly index: number;
  readonly key: string;
}

/** What is known of one target. */
interface RatedDifference {
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
 * What prefill costs at each target of a pool, learned from the times to first tokens: of what this router sees, and of what
 * others have seen as one. One fit serves the pool, for its engines are of one model and mostly alike; a target whose times
 * are off it by a lasting factor gets that factor.
 */
export class PrefillRates {
  readonly #fleet: FleetSums | undefined;
  #own = fitOf(1);
  /** Samples of the beginning, until there are `startSamples`. */
  #first: PrefillSample[] | undefined = [];
  readonly #ratios: (TargetRatio | undefined)[] = [];
  #samples = 0;
  #seenVersion = 0;

  /** @param fleet what other routers know; left out where there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** For a token of the prompt, at a target of factor 1. */
  get msPerToken(): number {
    return this.#fit.coefficients[0]! / 1e3;
  }

  /** For a token of the prompt and one before it that it attends to, at a target of factor 1. */
  get msPerTokenPair(): number {
    return this.#fit.coefficients[1]! / 1e6;
  }

  /** Overhead of a first token: a step that runs already, and the network. */
  get fixedMs(): number {
    return this.#fit.coefficients[2]!;
  }

  /** Samples seen here. */
  get samples(): number {
    return this.#samples;
  }

  /** Whether any router has samples. */
  get isLearned(): boolean {
    return this.#samples > 0 || this.#fleet?.merged?.prefill !== undefined;
  }

  /** Sums of own samples: old ones and uncertain ones count for less. */
  get sums(): FitSums {
    return this.#own.sums;
  }

  /** In milliseconds. */
  get fit(): PrefillFit {
    return asFit(this.#fit.coefficients);
  }

  /** The fit of own samples alone. */
  get ownFit(): PrefillFit {
    return asFit(this.#own.alone());
  }

  /** Every target with own samples. */
  *differences(): Generator<RatedDifference & { readonly key: string }, void, undefined> {
    for (const ratio of this.#ratios) if (ratio) yield { ...ratio };
  }

  /** A target's times relative to those of the pool; 1 unless it is known to differ. */
  factorOf(target: RatedTarget): number {
    return factorOfLog(this.#logOf(target));
  }

  /** Milliseconds of computing, without the overhead of a first token. */
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

  /** With what others have told by now. */
  get #fit(): NonNegativeFit {
    const fleet = this.#fleet;
    if (fleet && fleet.version !== this.#seenVersion) this.#hear(fleet);
    return this.#own;
  }

  #hear(fleet: FleetSums): void {
    this.#seenVersion = fleet.version;
    const others = fleet.merged?.prefill;
    const { own, told } = fleet.left;
    // What is believed beside all of it is as fast as they say, as long as nothing was seen here.
    if (others && this.#samples === 0) this.#own = fitOf(this.#toldScale);
    this.#own.include(others && scaled(others, told), own);
  }

  /** By how much others say that what is believed is off. */
  get #toldScale(): number {
    const others = this.#fleet?.merged?.prefill;
    return others ? Math.max(leastScale, compare(others, yardstick).speed) : 1;
  }

  /** Logarithm of what a target takes over what the fit says: as long as little is known, the rest is taken to be like the pool. */
  #logOf({ index, key }: RatedTarget): number {
    const ratio = this.#ratios[index];
    const { log, known } = ratio?.key === key ? ratio : nothingKnown;
    const told = this.#fleet?.merged?.differences.get(key);
    if (!told) return log;
    const left = this.#fleet!.left;
    return (left.own * log + left.told * told.log) / Math.max(1, left.own * known + left.told * told.known);
  }

  /**
   * The first samples are judged together, for what is believed may be far off, and so may any of them: an engine's first
   * prompts take long. The fit is made anew around the median of how far they are off, the belief counted in, or what others say
   * in its place: no more of it, for by these samples this router judges them.
   */
  #begin(first: PrefillSample[], sample: PrefillSample): void {
    first.push(sample);
    const believed = fitOf(1);
    const ratios = [this.#toldScale, ...first.map((one) => ratioOf(one, believed, 1))].sort(
      (one, other) => one - other,
    );
    const fit = fitOf(Math.max(leastScale, ratios[Math.floor((ratios.length - 1) / 2)]!));
    // What each is compared with must not move on the way.
    const parts = first.map((one) => ({ one, expectedMs: expectedMsOf(one, fit) }));
    for (const { one, expectedMs } of parts) learn(fit, one, { expectedMs, ratio: one.elapsedMs / expectedMs });
    this.#own = fit;
    if (this.#fleet) this.#hear(this.#fleet);
    if (first.length === startSamples) this.#first = undefined;
  }

  #goOn(target: RatedTarget, sample: PrefillSample): void {
    // Reports of peers age with each own sample.
    if (this.#fleet?.merged) this.#hear(this.#fleet);
    const fit = this.#own;
    const factor = this.factorOf(target);
    const ratio = ratioOf(sample, fit, factor);
    learn(fit, sample, { expectedMs: expectedMsOf(sample, fit), ratio }, this.#fleet?.routers);
    if (!sample.hasWaited) this.#noteRatio(target, Math.log(ratio * factor));
  }

  #noteRatio({ index, key }: RatedTarget, log: number): void {
    if (index >= maxRatedTargets) return;
    let known = this.#ratios[index];
    if (known?.key !== key) {
      known = { key, log: 0, known: 0 };
      this.#ratios[index] = known;
    }
    const before = this.#logOf({ index, key });
    const kept = (1 - ratioGain) ** (1 + (this.#fleet?.routers ?? 0));
    const moved = before + Math.max(-ratioStep, Math.min(ratioStep, log - before));
    known.log = kept * known.log + ratioGain * moved;
    known.known = kept * known.known + ratioGain;
  }
}

/** What a target takes over others: 1 unless it differs by more than chance does. */
function factorOfLog(log: number): number {
  return Math.abs(log) > likeness ? Math.exp(log) : 1;
}

/** Targets of a higher place are taken to be like their pool. */
export const maxRatedTargets = 4_096;

/**
 * By how much of a sample each of these is held. At some engines the last two are, beside the first, ten times what is believed:
 * held by one, they would not get there in hundreds of prompts, and a prompt of 100,000 tokens would be taken for half of what it is.
 */
const beliefFirmness = [1, 0.03, 0.1] as const;
const yardstick = [believedFit.msPerKilotoken, believedFit.msPerMegapair, believedFit.fixedMs] as const;
const startSamples = 16;
/** No engine is faster than a thousand times what is believed. */
const leastScale = 0.001;
/** 500 samples later one counts by a third. */
const memory = 0.998;
/** Logarithm up to which a sample is off by chance; beyond it samples pull no harder (Huber's loss). */
const usualError = 0.25;
const waitedWeight = 0.2;
/** A lasting difference below this (e^0.2: 22 %) is not told from chance: engines that are alike must look alike. */
const likeness = 0.2;
const ratioGain = 0.05;
/** A sample moves the logarithm of a target's factor by no more than if it were off by this. */
const ratioStep = 0.5;

function asFit(coefficients: Float64Array): PrefillFit {
  const [msPerKilotoken, msPerMegapair, fixedMs] = coefficients;
  return { msPerKilotoken: msPerKilotoken!, msPerMegapair: msPerMegapair!, fixedMs: fixedMs! };
}

function scaled(sums: FitSums, share: number): FitSums {
  if (share === 1) return sums;
  const to = { matrix: new Float64Array(9), right: new Float64Array(3) };
  addSums(to, sums, share);
  return { ...to, weight: share * sums.weight };
}

function fitOf(scale: number): NonNegativeFit {
  const { msPerKilotoken, msPerMegapair, fixedMs } = believedFit;
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
  elsewhere = 0,
): void {
  const bounded = Math.min(outlierBound, Math.max(1 / outlierBound, ratio));
  // Errors count by their share of the whole: what matters of a long prompt is not a few milliseconds.
  const scale = 1 / (expectedMs + errorFloorMs);
  const [one, two, three] = featuresOf(sample);
  const trust = Math.min(1, usualError / Math.abs(Math.log(bounded)));
  const weight = trust * (sample.hasWaited ? waitedWeight : 1);
  fit.add([one * scale, two * scale, three * scale], bounded * expectedMs * scale, weight, elsewhere);
}

/** By which a fit's three products are multiplied: thousand tokens, million pairs, and one. */
export function featuresOf({ uncachedTokens, matchedTokens, sameStep = [] }: PromptStep): [number, number, number] {
  let tokens = 0;
  let pairs = 0;
  for (const part of [{ uncachedTokens, matchedTokens }, ...sameStep]) {
    tokens += part.uncachedTokens;
    pairs += part.uncachedTokens * (part.matchedTokens + part.uncachedTokens / 2);
  }
  return [tokens / 1e3, pairs / 1e6, 1];
}

/** Who learns from first tokens. */
interface StepLearner {
  observe(target: RatedTarget, sample: PrefillSample): void;
}

interface Held {
  readonly target: RatedTarget;
  readonly sample: PrefillSample;
  readonly sameStep: PromptPart[];
}

/**
 * Engines compute several short prompts in one step. The first of their first tokens seems to have taken all of the time, and
 * the others none: they are learned from as one. So a sample waits for the next one of its target, unless nothing is left there.
 */
export class SharedSteps {
  readonly #learner: StepLearner;
  readonly #held: (Held | undefined)[] = [];

  constructor(learner: StepLearner) {
    this.#learner = learner;
  }

  /**
   * A first token came.
   *
   * @param isLast no other prompt is at the target
   */
  computed(target: RatedTarget, sample: PrefillSample, isLast: boolean): void {
    const held = this.#held[target.index];
    if (held?.target.key === target.key && sample.hasWaited && sample.elapsedMs < sameStepMs) {
      if (held.sameStep.length < maxPromptsPerStep) held.sameStep.push(sample);
    } else {
      this.#learn(target.index);
      this.#held[target.index] = { target, sample, sameStep: [] };
    }
    if (isLast) this.#learn(target.index);
  }

  #learn(index: number): void {
    const held = this.#held[index];
    if (!held) return;
    this.#held[index] = undefined;
    const { target, sample, sameStep } = held;
    this.#learner.observe(target, { ...sample, sameStep });
  }
}

/** First tokens of one step arrive so close to each other; steps take longer. */
const sameStepMs = 3;
/** Further prompts of one step that are counted with the first. */
export const maxPromptsPerStep = 256;
