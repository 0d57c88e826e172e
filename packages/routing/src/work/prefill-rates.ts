import { DecayedRegression, type Moments, type PeerSamples, type SampleSums } from "@espalier/core";
import type { FleetSums } from "./fleet-sums.ts";
import { type FetchedTokens, type PrefillFit, priorScale } from "./learned-times.ts";
import { speedOf } from "./merge-sums.ts";
import { boundError, errorFloorMs } from "./sample-error.ts";

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
  #own = new PrefillRegression(1);
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
  get sums(): SampleSums {
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
    const log = this.#logOf(target);
    return Math.abs(log) > likeness ? Math.exp(log) : 1;
  }

  /** Milliseconds of computing, without the overhead of a first token. */
  workMs(target: RatedTarget, { uncachedTokens, matchedTokens }: PromptPart): number {
    const pairs = uncachedTokens * (matchedTokens + uncachedTokens / 2);
    return this.factorOf(target) * (this.msPerToken * uncachedTokens + this.msPerTokenPair * pairs);
  }

  /** Milliseconds to a first token if no work is queued before it and nothing has to be fetched. */
  firstTokenMs(target: RatedTarget, step: PromptStep): number {
    const [kilotokens, megapairs] = featuresOf(step);
    const { msPerKilotoken, msPerMegapair, fixedMs } = this.fit;
    return this.factorOf(target) * (msPerKilotoken * kilotokens + msPerMegapair * megapairs + fixedMs);
  }

  /** Targets from index `maxRatedTargets` on teach only the pool. */
  observe(target: RatedTarget, sample: PrefillSample): void {
    const [tokens, pairs] = featuresOf(sample);
    if (!(sample.elapsedMs >= 0 && sample.elapsedMs + tokens + pairs < Number.POSITIVE_INFINITY)) return;
    this.#samples++;
    if (this.#first) this.#begin(this.#first, sample);
    else this.#continue(target, sample);
  }

  /** Includes what others have published so far. */
  get #fit(): PrefillRegression {
    const fleet = this.#fleet;
    if (fleet && fleet.version !== this.#seenVersion) this.#include(fleet);
    return this.#own;
  }

  #include(fleet: FleetSums): void {
    this.#seenVersion = fleet.version;
    const others = fleet.peerSamples("prefill");
    // Until this router has own samples, the others' speed scales the prior.
    if (others && this.#samples === 0) this.#own = new PrefillRegression(this.#reportedScale);
    this.#own.include(others);
  }

  /** By what factor the prior is off, according to others. */
  get #reportedScale(): number {
    const others = this.#fleet?.merged?.prefill;
    return others ? Math.max(leastScale, speedOf(others, priorScale).speed) : 1;
  }

  /**
   * Logarithm of a target's time relative to the fit. As far as samples are missing, the target counts as equal to the
   * pool.
   */
  #logOf({ index, key }: RatedTarget): number {
    const ratio = this.#ratios[index];
    const { log, known } = ratio?.key === key ? ratio : nothingKnown;
    const others = this.#fleet?.merged?.differences.get(key);
    if (!others) return log;
    const { own, reported } = this.#fleet!.ageWeights;
    return (own * log + reported * others.log) / Math.max(1, own * known + reported * others.known);
  }

  /**
   * Evaluates the first samples together, because the prior may be far off, and so may any sample: an engine's first
   * prompts take long. Rebuilds the fit around the median of their ratios, including the prior, or what others report
   * instead. It uses no more of the others' reports, because this router judges them by these samples.
   */
  #begin(first: PrefillSample[], sample: PrefillSample): void {
    first.push(sample);
    const assumed = new PrefillRegression(1);
    const ratios = [this.#reportedScale, ...first.map((one) => one.elapsedMs / assumed.expectedMs(one))].sort(
      (one, other) => one - other,
    );
    this.#own = new PrefillRegression(Math.max(leastScale, ratios[Math.floor((ratios.length - 1) / 2)]!));
    // The values to compare with must not change on the way.
    const expected = first.map((one) => this.#own.expectedMs(one));
    for (const [at, one] of first.entries()) this.#own.learn(one, expected[at]!);
    if (this.#fleet) this.#include(this.#fleet);
    if (first.length === startSamples) this.#first = undefined;
  }

  #continue(target: RatedTarget, sample: PrefillSample): void {
    // Reports of peers age with each own sample.
    if (this.#fleet?.merged) this.#include(this.#fleet);
    const factor = this.factorOf(target);
    const expectedMs = this.#own.expectedMs(sample);
    this.#own.learn(sample, expectedMs, { factor, elsewhere: this.#fleet?.routers ?? 0 });
    if (!sample.hasWaited) this.#learnRatio(target, Math.log(sample.elapsedMs / expectedMs));
  }

  #learnRatio({ index, key }: RatedTarget, log: number): void {
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

/** The fit of a pool's prefill times: by `featuresOf`, relative to the expected time. */
class PrefillRegression {
  readonly #regression: DecayedRegression;
  readonly #assumed: readonly number[];
  #others: PeerSamples | undefined;

  /** @param scale by what factor the prior is off */
  constructor(scale: number) {
    this.#assumed = priorScale.map((one) => scale * one);
    this.#regression = new DecayedRegression(this.#assumed, memory, { first: 1, kept: memory, least: leastPrior });
  }

  /** Of own samples. */
  get sums(): SampleSums {
    return this.#regression;
  }

  get coefficients(): Float64Array {
    return this.#regression.coefficients;
  }

  /** The coefficients without the samples of others. */
  alone(): Float64Array {
    const own = this.coefficients.slice();
    return this.#others ? this.#solve(undefined, own) : own;
  }

  expectedMs(sample: PromptStep): number {
    return Math.max(1, this.#regression.value(featuresOf(sample)));
  }

  /** Includes the samples of others from now on. */
  include(others: PeerSamples | undefined): void {
    this.#others = others;
    this.#solve(others);
  }

  /**
   * @param expectedMs at a target of factor 1
   * @param elsewhere samples that others add for each one added here
   */
  learn(sample: PrefillSample, expectedMs: number, { factor = 1, elsewhere = 0 } = {}): void {
    const { ratio, weight: trust } = boundError(sample.elapsedMs / (factor * expectedMs));
    // Errors are relative to the whole: a few milliseconds do not matter for a long prompt.
    const scale = 1 / (expectedMs + errorFloorMs);
    const [tokens, pairs, one] = featuresOf(sample);
    const features = [tokens * scale, pairs * scale, one * scale];
    const weight = trust * (sample.hasWaited ? waitedWeight : 1);
    this.#regression.add({ features, value: ratio * expectedMs * scale, weight }, elsewhere);
    this.#regression.weakenPrior((1 + elsewhere) * weight);
    this.#solve(this.#others);
  }

  #solve(others: PeerSamples | undefined, coefficients?: Float64Array): Float64Array {
    const prior = priorOf(this.#assumed, this.#regression.priorWeight(others));
    return this.#regression.solve(prior, others, coefficients);
  }
}

/** Samples of each product alone that took the assumed time. */
function priorOf(assumed: readonly number[], weight: number): Moments {
  const matrix = new Float64Array(9);
  const right = new Float64Array(3);
  for (let at = 0; at < 3; at++) {
    matrix[4 * at] = (priorWeights[at]! * weight) / assumed[at]! ** 2;
    right[at] = (priorWeights[at]! * weight) / assumed[at]!;
  }
  return { matrix, right };
}

/** Targets with a higher index count as equal to their pool. */
export const maxRatedTargets = 4_096;

/**
 * Weight of the prior of each coefficient, in samples. At some engines the last two are, relative to the first, ten
 * times the prior. With a weight of 1 they would not get there in hundreds of prompts, and a prompt of 100,000 tokens
 * would be estimated at half its time.
 */
const priorWeights = [1, 0.03, 0.1] as const;
/** This much of them always stays: samples that are all alike leave a fit undetermined. */
const leastPrior = 0.001;
const startSamples = 16;
/** No engine is faster than a thousand times the prior. */
const leastScale = 0.001;
/** After 500 more samples a sample counts by a third. */
const memory = 0.998;
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

/** The factors of a fit's three products: thousand tokens, million pairs, and one. */
function featuresOf({ uncachedTokens, matchedTokens, sameStep = [] }: PromptStep): [number, number, number] {
  let tokens = 0;
  let pairs = 0;
  for (const part of [{ uncachedTokens, matchedTokens }, ...sameStep]) {
    tokens += part.uncachedTokens;
    pairs += part.uncachedTokens * (part.matchedTokens + part.uncachedTokens / 2);
  }
  return [tokens / 1e3, pairs / 1e6, 1];
}
