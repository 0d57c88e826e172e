import type { FleetSums } from "./fleet-sums.ts";
import { believedFit, errorFloorMs, type FetchedTokens, outlierBound, type PrefillFit } from "./learned-times.ts";
import { addSums, type FitSums, NonNegativeFit } from "./least-squares.ts";
import { compare } from "./merge-sums.ts";

/** The work of a prompt for a target's engine. */
export interface PromptPart {
  /** Tokens to compute. */
  readonly uncachedTokens: number;
  /** Earlier tokens that are cached, but attended to. */
  readonly matchedTokens: number;
  /** Those of them that must be fetched to the GPU first; undefined if none. */
  readonly fetched?: FetchedTokens | undefined;
}

/** A prompt and the others computed in the same step. */
export interface PromptStep extends PromptPart {
  /** Other prompts computed in the same step; the time covers all of them. */
  readonly sameStep?: readonly PromptPart[];
}

/** How long a prompt took. */
export interface PrefillSample extends PromptStep {
  /** From when the engine could begin to its first token. */
  readonly elapsedMs: number;
  /** Whether other prompts were queued before it, which makes the start of computing uncertain. */
  readonly hasWaited: boolean;
}

/** A target by its index in this process, and its key, since indices are reused. */
export interface RatedTarget {
  readonly index: number;
  readonly key: string;
}

/** What is known of one target. */
interface RatedDifference {
  /** Logarithm of its time relative to the pool's fit, smoothed, starting from 0. */
  readonly log: number;
  /** The share of `log` that comes from samples rather than from the initial 0, from 0 to below 1. */
  readonly known: number;
}

interface TargetRatio extends RatedDifference {
  readonly key: string;
  log: number;
  known: number;
}

const nothingKnown: RatedDifference = { log: 0, known: 0 };

/**
 * Prefill time at each target of a pool, learned from times to first token, from this router's samples and those of
 * others in one fit. One fit serves the pool, because its engines run one model and are mostly alike. A target whose
 * times differ by a lasting factor gets that factor.
 */
export class PrefillRates {
  readonly #fleet: FleetSums | undefined;
  #own = fitOf(1);
  /** The first samples, until there are `startSamples`. */
  #first: PrefillSample[] | undefined = [];
  readonly #ratios: (TargetRatio | undefined)[] = [];
  #samples = 0;
  #seenVersion = 0;

  /** @param fleet what other routers know; absent if there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** Per prompt token, at a target of factor 1. */
  get msPerToken(): number {
    return this.#fit.coefficients[0]! / 1e3;
  }

  /** Per prompt token and earlier token that it attends to, at a target of factor 1. */
  get msPerTokenPair(): number {
    return this.#fit.coefficients[1]! / 1e6;
  }

  /** Overhead of a first token: the step in progress, and the network. */
  get fixedMs(): number {
    return this.#fit.coefficients[2]!;
  }

  /** Number of own samples. */
  get samples(): number {
    return this.#samples;
  }

  /** Whether any router has samples. */
  get isLearned(): boolean {
    return this.#samples > 0 || this.#fleet?.merged?.prefill !== undefined;
  }

  /** Sums of own samples: old and uncertain ones count for less. */
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

  /** A target's times relative to those of the pool; 1 unless a difference is known. */
  factorOf(target: RatedTarget): number {
    return factorOfLog(this.#logOf(target));
  }

  /** Milliseconds of computing, without the overhead of a first token. */
  workMs(target: RatedTarget, { uncachedTokens, matchedTokens }: PromptPart): number {
    const pairs = uncachedTokens * (matchedTokens + uncachedTokens / 2);
    return this.factorOf(target) * (this.msPerToken * uncachedTokens + this.msPerTokenPair * pairs);
  }

  /** Targets from index `maxRatedTargets` on teach only the pool. */
  observe(target: RatedTarget, sample: PrefillSample): void {
    const [tokens, pairs] = featuresOf(sample);
    if (!(sample.elapsedMs >= 0 && sample.elapsedMs + tokens + pairs < Number.POSITIVE_INFINITY)) return;
    this.#samples++;
    if (this.#first) this.#begin(this.#first, sample);
    else this.#goOn(target, sample);
  }

  /** Includes what others have published so far. */
  get #fit(): NonNegativeFit {
    const fleet = this.#fleet;
    if (fleet && fleet.version !== this.#seenVersion) this.#hear(fleet);
    return this.#own;
  }

  #hear(fleet: FleetSums): void {
    this.#seenVersion = fleet.version;
    const others = fleet.merged?.prefill;
    const { own, reported } = fleet.left;
    // Until this router has own samples, the others' speed scales the prior.
    if (others && this.#samples === 0) this.#own = fitOf(this.#reportedScale);
    this.#own.include(others && scaled(others, reported), own);
  }

  /** By what factor the prior is off, according to others. */
  get #reportedScale(): number {
    const others = this.#fleet?.merged?.prefill;
    return others ? Math.max(leastScale, compare(others, yardstick).speed) : 1;
  }

  /**
   * Logarithm of a target's time relative to the fit. As far as samples are missing, the target counts as equal to the
   * pool.
   */
  #logOf({ index, key }: RatedTarget): number {
    const ratio = this.#ratios[index];
    const { log, known } = ratio?.key === key ? ratio : nothingKnown;
    const reported = this.#fleet?.merged?.differences.get(key);
    if (!reported) return log;
    const left = this.#fleet!.left;
    return (
      (left.own * log + left.reported * reported.log) / Math.max(1, left.own * known + left.reported * reported.known)
    );
  }

  /**
   * Evaluates the first samples together, because the prior may be far off, and so may any sample: an engine's first
   * prompts take long. Rebuilds the fit around the median of their ratios, including the prior, or what others report
   * instead. It uses no more of the others' reports, because this router judges them by these samples.
   */
  #begin(first: PrefillSample[], sample: PrefillSample): void {
    first.push(sample);
    const believed = fitOf(1);
    const ratios = [this.#reportedScale, ...first.map((one) => ratioOf(one, believed, 1))].sort(
      (one, other) => one - other,
    );
    const fit = fitOf(Math.max(leastScale, ratios[Math.floor((ratios.length - 1) / 2)]!));
    // The values to compare with must not change on the way.
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

/** A target's time relative to others: 1 unless it differs by more than chance. */
function factorOfLog(log: number): number {
  return Math.abs(log) > likeness ? Math.exp(log) : 1;
}

/** Targets with a higher index count as equal to their pool. */
export const maxRatedTargets = 4_096;

/**
 * Weight of the prior of each coefficient, in samples. At some engines the last two are, relative to the first, ten
 * times the prior. With a weight of 1 they would not get there in hundreds of prompts, and a prompt of 100,000 tokens
 * would be estimated at half its time.
 */
const beliefFirmness = [1, 0.03, 0.1] as const;
const yardstick = [believedFit.msPerKilotoken, believedFit.msPerMegapair, believedFit.fixedMs] as const;
const startSamples = 16;
/** No engine is faster than a thousand times the prior. */
const leastScale = 0.001;
/** After 500 more samples a sample counts by a third. */
const memory = 0.998;
/** Logarithm up to which an error is taken for chance; beyond it samples pull no harder (Huber's loss). */
const usualError = 0.25;
const waitedWeight = 0.2;
/** A lasting difference below this (e^0.2: 22 %) is taken for chance: equal engines must look equal. */
const likeness = 0.2;
const ratioGain = 0.05;
/** A sample moves the logarithm of a target's factor by at most what an error of this size would. */
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

/** @param ratio time of the sample relative to its expected time at the target */
function learn(
  fit: NonNegativeFit,
  sample: PrefillSample,
  { expectedMs, ratio }: { readonly expectedMs: number; readonly ratio: number },
  elsewhere = 0,
): void {
  const bounded = Math.min(outlierBound, Math.max(1 / outlierBound, ratio));
  // Errors are relative to the whole: a few milliseconds do not matter for a long prompt.
  const scale = 1 / (expectedMs + errorFloorMs);
  const [one, two, three] = featuresOf(sample);
  const trust = Math.min(1, usualError / Math.abs(Math.log(bounded)));
  const weight = trust * (sample.hasWaited ? waitedWeight : 1);
  fit.add([one * scale, two * scale, three * scale], bounded * expectedMs * scale, weight, elsewhere);
}

/** The factors of a fit's three products: thousand tokens, million pairs, and one. */
export function featuresOf({ uncachedTokens, matchedTokens, sameStep = [] }: PromptStep): [number, number, number] {
  let tokens = 0;
  let pairs = 0;
  for (const part of [{ uncachedTokens, matchedTokens }, ...sameStep]) {
    tokens += part.uncachedTokens;
    pairs += part.uncachedTokens * (part.matchedTokens + part.uncachedTokens / 2);
  }
  return [tokens / 1e3, pairs / 1e6, 1];
}

/** Learns from first tokens. */
interface StepLearner {
  observe(target: RatedTarget, sample: PrefillSample): void;
}

interface Held {
  readonly target: RatedTarget;
  readonly sample: PrefillSample;
  readonly sameStep: PromptPart[];
}

/**
 * Engines compute several short prompts in one step. The first of their first tokens then seems to have taken all of
 * the time, and the others none, so they form one sample. Therefore a sample waits for the target's next one, unless
 * the target has no other prompt.
 */
export class SharedSteps {
  readonly #learner: StepLearner;
  readonly #held: (Held | undefined)[] = [];

  constructor(learner: StepLearner) {
    this.#learner = learner;
  }

  /**
   * A first token arrived.
   *
   * @param isLast whether the target has no other prompt
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

/** First tokens of one step arrive within this time; steps take longer. */
const sameStepMs = 3;
/** Bound of further prompts of one step that count with the first. */
export const maxPromptsPerStep = 256;
