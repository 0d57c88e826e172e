import type { Clock } from "@espalier/core";
import { believedFit, isPlausible, type LearnedTimes, type SlowTier, slowTiers } from "./learned-times.ts";
import type { FitSums } from "./least-squares.ts";
import { countedShares, type MergedSums, mergeSums } from "./merge-sums.ts";

/** What other routers have seen of a pool, added up as of `learnedMs`. */
export interface FleetSamples {
  /** Time of the latest sample, on the monotonic clock. */
  readonly learnedMs: number;
  readonly prefill: MergedSums | undefined;
  readonly answers: MergedSums | undefined;
  /** By target key: weighted sum of the logarithms of its times relative to the fit, and the sum of weights. */
  readonly differences: ReadonlyMap<string, { readonly log: number; readonly known: number }>;
  /** Tiers from which some router has fetched. */
  readonly fetches: ReadonlyMap<SlowTier, MergedSums & { readonly learnedMs: number }>;
}

/** What this router has seen itself, by which it judges the others. */
export interface OwnSamples {
  prefill(): FitSums;
  answers(): FitSums;
  fetches(tier: SlowTier): FitSums;
  differences(): Iterable<{ readonly key: string; readonly log: number; readonly known: number }>;
}

/** Weights by age of own samples and those of peers; the later of the two has weight 1. */
export interface Left {
  readonly own: number;
  readonly reported: number;
}

interface Report {
  readonly router: string;
  readonly times: LearnedTimes;
  /** Time of the latest sample. */
  readonly learnedMs: number;
  readonly heardMs: number;
}

/**
 * What other routers have seen of one pool: the latest sums of each. They contain only its own samples, so none counts
 * twice. The total does not depend on the order or number of reports.
 */
export class FleetSums {
  readonly #clock: Clock;
  readonly #own: OwnSamples;
  readonly #reports = new Map<string, Report>();
  #merged: FleetSamples | undefined;
  #isMerged = true;
  #version = 0;
  #ownLearnedMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, own: OwnSamples) {
    this.#clock = clock;
    this.#own = own;
  }

  /** Changes with every report. */
  get version(): number {
    return this.#version;
  }

  /** Undefined before the first report. */
  get merged(): FleetSamples | undefined {
    if (!this.#isMerged) {
      this.#isMerged = true;
      this.#merged = this.#merge();
    }
    return this.#merged;
  }

  /** Peers that learn about the pool; old ones count for less. */
  get routers(): number {
    return (this.merged?.prefill?.routers ?? 0) * this.left.reported;
  }

  get left(): Left {
    return leftOf(this.#ownLearnedMs, this.merged?.learnedMs ?? Number.NEGATIVE_INFINITY);
  }

  /** Time since this router last learned something itself; infinite before. */
  get ownAgeMs(): number {
    return this.#clock.nowMs() - this.#ownLearnedMs;
  }

  /** Call when this router learns something itself. */
  learns(): void {
    this.#ownLearnedMs = this.#clock.nowMs();
  }

  /**
   * Replaces a router's report, whether the last one is from this process or an earlier one.
   *
   * @returns false if the report is impossible and ignored
   */
  tell(router: string, times: LearnedTimes): boolean {
    if (!isPlausible(times)) return false;
    if (times.sums.weight <= 0) return true;
    this.#reports.delete(router);
    if (this.#reports.size >= maxReportingRouters) this.#forgetOldest();
    const heardMs = this.#clock.nowMs();
    this.#reports.set(router, { router, times, heardMs, learnedMs: heardMs - times.ageMs });
    this.#isMerged = false;
    this.#version++;
    return true;
  }

  #forgetOldest(): void {
    let oldest: Report | undefined;
    for (const reported of this.#reports.values())
      if (!oldest || reported.learnedMs < oldest.learnedMs) oldest = reported;
    this.#reports.delete(oldest!.router);
  }

  #merge(): FleetSamples {
    // The last digit of a floating-point sum depends on the order.
    const all = [...this.#reports.values()].sort((one, other) => (one.router < other.router ? -1 : 1));
    const learnedMs = Math.max(...all.map((reported) => reported.learnedMs));
    const aged = all.map(({ times, learnedMs: ofMs }) => ({ times, left: halfLives(learnedMs - ofMs) }));
    const prefill = mergeSums(
      aged.map(({ times, left }) => ({ ...times.sums, left })),
      { yardstick: usualFit, own: this.#own.prefill(), enough: enoughPrompts, leastCounted: leastCountedPrompts },
    );
    const usual = aged.filter((_, at) => prefill.shares[at]! > 0);
    const answers = mergeSums(
      usual.map(({ times: { msPerOutputToken, answers: seen }, left }) => {
        return { matrix: [seen], right: [seen * msPerOutputToken], weight: seen, left };
      }),
      { yardstick: [1], own: this.#own.answers(), enough: enoughPrompts },
    );
    return {
      ...{ learnedMs, prefill: prefill.merged, answers: answers.merged },
      ...{ differences: differencesOf(usual, this.#own), fetches: fetchesOf(all, this.#own) },
    };
  }
}

/** Bound of routers whose reports are kept; beyond it the oldest is forgotten. */
export const maxReportingRouters = 256;
/** Half-life of learned times. */
export const learningHalfLifeMs = 600_000;
/** With this many samples a router knows enough to judge others. */
const enoughPrompts = 8;
const enoughFetches = 4;
const enoughKnown = 0.1;
/** This many samples of a peer count in any case. */
const leastCountedPrompts = 64;
/** Fetching a thousand tokens in less time counts as instant. */
const leastFetchMs = 1;
const usualFit = [believedFit.msPerKilotoken, believedFit.msPerMegapair, believedFit.fixedMs] as const;

/** Relative weights of own samples and those of peers, by the times when they were learned. */
export function leftOf(ownMs: number, reportedMs: number): Left {
  // If one or both learned nothing, the weight does not matter.
  const agoMs = ownMs === reportedMs ? 0 : ownMs - reportedMs;
  return { own: halfLives(-agoMs), reported: halfLives(agoMs) };
}

/** The share of a weight that is left at this age. */
function halfLives(ageMs: number): number {
  return 0.5 ** (Math.max(0, ageMs) / learningHalfLifeMs);
}

interface Aged {
  readonly times: LearnedTimes;
  readonly left: number;
}

function fetchesOf(all: readonly Report[], own: OwnSamples): FleetSamples["fetches"] {
  const merged = new Map<SlowTier, MergedSums & { learnedMs: number }>();
  for (const tier of slowTiers) {
    const reported = all.flatMap(({ times, heardMs }) =>
      times.fetches
        .filter((one) => one.tier === tier && one.sums.weight > 0)
        .map((one) => ({ ...one.sums, learnedMs: heardMs - one.ageMs })),
    );
    const learnedMs = Math.max(...reported.map((one) => one.learnedMs));
    const sum = mergeSums(
      reported.map((one) => ({ ...one, left: halfLives(learnedMs - one.learnedMs) })),
      // Times close to zero are not distinguished from zero.
      { yardstick: [1], own: own.fetches(tier), enough: enoughFetches, negligible: leastFetchMs },
    );
    if (sum.merged) merged.set(tier, { ...sum.merged, learnedMs });
  }
  return merged;
}

function differencesOf(all: readonly Aged[], own: OwnSamples): FleetSamples["differences"] {
  const reported = new Map<string, { log: number; known: number }[]>();
  for (const { times, left } of all) {
    for (const { key, log, known } of times.targets) {
      const words = reported.get(key) ?? [];
      words.push({ log: left * log, known: left * known });
      reported.set(key, words);
    }
  }
  const here = new Map([...own.differences()].map((one) => [one.key, one]));
  const sums = new Map<string, { log: number; known: number }>();
  for (const [key, words] of reported) {
    const seen = here.get(key);
    const ownWord = seen && wordOf(seen);
    const shares = countedShares(words.map(wordOf), ownWord?.isFirm ? ownWord : undefined);
    const sum = { log: 0, known: 0 };
    for (const [at, { log, known }] of words.entries()) {
      sum.log += shares[at]! * log;
      sum.known += shares[at]! * known;
    }
    sums.set(key, sum);
  }
  return sums;
}

function wordOf({ log, known }: { readonly log: number; readonly known: number }) {
  return { log: known > 0 ? log / known : 0, pull: known, isFirm: known >= enoughKnown };
}
