import type { Clock } from "@espalier/common";
import { coldPromptMs, isPlausible, type LearnedTimes, type PrefillFit, referenceKilotokens } from "./learned-times.ts";
import { type SlowTier, slowTiers } from "./slow-tiers.ts";

/** What other routers have learned of a pool, taken together. */
export interface MergedTimes {
  readonly fit: PrefillFit;
  /** 0 where nobody knows. */
  readonly msPerOutputToken: number;
  /** By key: logarithm of what a target takes over what `fit` says, as far as somebody knows. */
  readonly differences: ReadonlyMap<string, { readonly log: number; readonly known: number }>;
  /** Tiers that somebody has fetched from. */
  readonly fetches: ReadonlyMap<SlowTier, MergedFetch>;
}

/** What others have learned of a tier. */
export interface MergedFetch {
  readonly msPerKilotoken: number;
  /** Prompts that this rests on, as of when the latest of them came. */
  readonly samples: number;
  /** When that was, by the monotonic clock. */
  readonly learnedMs: number;
}

interface Told {
  readonly router: string;
  readonly times: LearnedTimes;
  /** When the latest of it was learned. */
  readonly learnedMs: number;
  readonly heardMs: number;
}

/**
 * What other routers have learned of one pool: of each the latest, weighted by how much it rests on and how old it is. It
 * does not depend on the order in which routers tell, nor on how often.
 */
export class FleetTimes {
  readonly #clock: Clock;
  readonly #told = new Map<string, Told>();
  #merged: MergedTimes | undefined;
  /** Sums of weights, as of `#weightsMs`. */
  #samples = 0;
  #answers = 0;
  #weightsMs = 0;
  #version = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Changes whenever a router has told something. */
  get version(): number {
    return this.#version;
  }

  /** Undefined as long as nobody has told anything. */
  get merged(): MergedTimes | undefined {
    return this.#merged;
  }

  /** Prompts that the fit rests on, those of long ago counted less. */
  get samples(): number {
    return this.#samples * halfLives(this.#clock.nowMs() - this.#weightsMs);
  }

  /** Answers that the pace rests on. */
  get answers(): number {
    return this.#answers * halfLives(this.#clock.nowMs() - this.#weightsMs);
  }

  /**
   * A router has told what it has learned, in place of what it told before.
   *
   * @returns false when it cannot be so; it is left out then
   */
  tell(router: string, times: LearnedTimes): boolean {
    if (!isPlausible(times)) return false;
    if (times.samples <= 0) return true;
    this.#told.delete(router);
    if (this.#told.size >= maxTellers) this.#forgetOldest();
    const heardMs = this.#clock.nowMs();
    this.#told.set(router, { router, times, heardMs, learnedMs: heardMs - times.ageMs });
    this.#merge();
    this.#version++;
    return true;
  }

  #forgetOldest(): void {
    let oldest: Told | undefined;
    for (const told of this.#told.values()) if (!oldest || told.learnedMs < oldest.learnedMs) oldest = told;
    this.#told.delete(oldest!.router);
  }

  #merge(): void {
    // Sums of numbers depend on their order, if only in the last digit.
    const all = [...this.#told.values()].sort((one, other) => (one.router < other.router ? -1 : 1));
    this.#weightsMs = Math.max(...all.map(({ learnedMs }) => learnedMs));
    const aged = all.map((told) => ({ ...told, share: halfLives(this.#weightsMs - told.learnedMs) }));
    const speedOf = ({ times, share }: Weighted): Speed => ({
      ms: referenceMs(times.fit),
      weight: times.samples * share,
    });
    const weighted = withoutOdd(aged, speedOf);
    const samples = weighted.map(({ times, share }) => times.samples * share);
    const answers = weighted.map(({ times, share }) => times.answers * share);
    const mean = (of: (times: LearnedTimes) => number, weights: readonly number[]): number =>
      weighted.reduce((sum, { times }, at) => sum + weights[at]! * of(times), 0) / Math.max(sumOf(weights), least);
    this.#samples = sumOf(samples);
    this.#answers = sumOf(answers);
    const fit = {
      msPerKilotoken: mean((times) => times.fit.msPerKilotoken, samples),
      msPerMegapair: mean((times) => times.fit.msPerMegapair, samples),
      fixedMs: mean((times) => times.fit.fixedMs, samples),
    };
    const msPerOutputToken = mean((times) => times.msPerOutputToken, answers);
    this.#merged = { fit, msPerOutputToken, differences: differencesTo(fit, weighted), fetches: fetchesOf(all) };
  }
}

/** Routers whose word is kept; of more, the oldest is forgotten. */
export const maxTellers = 256;
/** What was learned so long ago counts for half. */
export const learningHalfLifeMs = 600_000;
/** A router that is off the median of all by this factor is left out: its engines or its clock are not those of the others. */
const oddFactor = 4;
const least = 1e-9;
/** Fetching a thousand tokens in less is as good as at once. */
const leastFetchMs = 1;

/** The share that is left of a weight after so long. */
export function halfLives(ageMs: number): number {
  return 0.5 ** (Math.max(0, ageMs) / learningHalfLifeMs);
}

interface Weighted extends Told {
  /** What is left of its weight, by age. */
  readonly share: number;
}

interface Speed {
  readonly ms: number;
  readonly weight: number;
}

/** Leaves out those whose speed is far from what most samples say. */
function withoutOdd<One>(all: readonly One[], speedOf: (one: One) => Speed): readonly One[] {
  const speeds = all.map(speedOf).sort((one, other) => one.ms - other.ms);
  const half = sumOf(speeds.map(({ weight }) => weight)) / 2;
  let seen = 0;
  const median = speeds.find(({ weight }) => {
    seen += weight;
    return seen >= half;
  });
  if (!median) return all;
  return all.filter((one) => {
    const { ms } = speedOf(one);
    return ms <= median.ms * oddFactor && ms >= median.ms / oddFactor;
  });
}

/** Of each tier the mean, by what each router's word rests on and how old it is. */
function fetchesOf(all: readonly Told[]): MergedTimes["fetches"] {
  const merged = new Map<SlowTier, MergedFetch>();
  for (const tier of slowTiers) {
    const told = all.flatMap(({ times, heardMs }) =>
      times.fetches
        .filter((one) => one.tier === tier && one.samples > 0)
        .map((one) => ({ ...one, learnedMs: heardMs - one.ageMs })),
    );
    if (told.length === 0) continue;
    const learnedMs = Math.max(...told.map((one) => one.learnedMs));
    const weightOf = (one: (typeof told)[number]): number => one.samples * halfLives(learnedMs - one.learnedMs);
    // What takes next to no time is not told from what takes none.
    const usual = withoutOdd(told, (one) => ({ ms: one.msPerKilotoken + leastFetchMs, weight: weightOf(one) }));
    const samples = sumOf(usual.map(weightOf));
    const sum = sumOf(usual.map((one) => weightOf(one) * one.msPerKilotoken));
    merged.set(tier, { msPerKilotoken: sum / samples, samples, learnedMs });
  }
  return merged;
}

/** Each router's differences are to its own fit: what that differs from the merged one is added. */
function differencesTo(fit: PrefillFit, all: readonly Weighted[]): MergedTimes["differences"] {
  const sums = new Map<string, { log: number; known: number }>();
  for (const { times, share } of all) {
    const shift = Math.log(referenceMs(times.fit) / referenceMs(fit));
    for (const { key, log, known } of times.targets) {
      const sum = sums.get(key) ?? { log: 0, known: 0 };
      sum.log += share * (log + known * shift);
      sum.known += share * known;
      sums.set(key, sum);
    }
  }
  // As long as little is known, the rest is taken to be like the pool.
  for (const sum of sums.values()) {
    sum.log /= Math.max(1, sum.known);
    sum.known = Math.min(1, sum.known);
  }
  return sums;
}

const referenceMs = (fit: PrefillFit): number => coldPromptMs(fit, referenceKilotokens);
const sumOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);
