import type { Clock, PeerSamples, SampleSums } from "@espalier/core";
import { isPlausible, type LearnedTimes, priorScale, type SlowTier, slowTiers } from "./learned-times.ts";
import { type MergedSums, mergeSums } from "./merge-sums.ts";

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
  prefill(): SampleSums;
  answers(): SampleSums;
  fetches(tier: SlowTier): SampleSums;
  differences(): Iterable<{ readonly key: string; readonly log: number; readonly known: number }>;
}

/** Weights by age of own samples and those of peers; the later of the two has weight 1. */
export interface AgeWeights {
  readonly own: number;
  readonly reported: number;
}

interface Report {
  readonly router: string;
  readonly times: LearnedTimes;
  /** Time of the latest sample. */
  readonly learnedMs: number;
  readonly receivedMs: number;
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
    return (this.merged?.prefill?.routers ?? 0) * this.ageWeights.reported;
  }

  get ageWeights(): AgeWeights {
    return ageWeights(this.#ownLearnedMs, this.merged?.learnedMs ?? Number.NEGATIVE_INFINITY);
  }

  /** Samples of peers beside own ones; undefined if there are none. */
  peerSamples(of: "prefill" | "answers"): PeerSamples | undefined {
    const sums = this.merged?.[of];
    if (!sums) return undefined;
    const { own, reported } = this.ageWeights;
    return { sums, own, reported };
  }

  /** Time since this router last learned something itself; infinite before. */
  get ownAgeMs(): number {
    return this.#clock.nowMs() - this.#ownLearnedMs;
  }

  /** Call when this router learns something itself. */
  learned(): void {
    this.#ownLearnedMs = this.#clock.nowMs();
  }

  /**
   * Replaces a router's report, whether the last one is from this process or an earlier one.
   *
   * @returns false if the report is impossible and ignored
   */
  receive(router: string, times: LearnedTimes): boolean {
    if (!isPlausible(times)) return false;
    if (times.sums.weight <= 0) return true;
    this.#reports.delete(router);
    if (this.#reports.size >= maxReportingRouters) this.#forgetOldest();
    const receivedMs = this.#clock.nowMs();
    this.#reports.set(router, { router, times, receivedMs, learnedMs: receivedMs - times.ageMs });
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
    const aged = all.map(({ times, learnedMs: ofMs }) => ({ times, ageWeight: ageWeight(learnedMs - ofMs) }));
    const prefill = mergeSums(
      aged.map(({ times, ...age }) => ({ ...times.sums, ...age })),
      { scale: priorScale, own: this.#own.prefill(), enough: enoughPrompts, leastCounted: leastCountedPrompts },
    );
    const usual = aged.filter((_, at) => prefill.shares[at]! > 0);
    const answers = mergeSums(
      usual.map(({ times: { msPerOutputToken, answers: seen }, ...age }) => ({
        ...meanOf(seen * msPerOutputToken, seen),
        ...age,
      })),
      { scale: [1], own: this.#own.answers(), enough: enoughPrompts },
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

/** Relative weights of own samples and those of peers, by the times when they were learned. */
export function ageWeights(ownMs: number, reportedMs: number): AgeWeights {
  // If one or both learned nothing, the weight does not matter.
  const agoMs = ownMs === reportedMs ? 0 : ownMs - reportedMs;
  return { own: ageWeight(-agoMs), reported: ageWeight(agoMs) };
}

/** The share of a weight that is left at this age. */
function ageWeight(ageMs: number): number {
  return 0.5 ** (Math.max(0, ageMs) / learningHalfLifeMs);
}

interface Aged {
  readonly times: LearnedTimes;
  readonly ageWeight: number;
}

/** Sums for one coefficient, whose estimate is `sum / weight`. */
function meanOf(sum: number, weight: number): SampleSums {
  return { matrix: [weight], right: [sum], weight };
}

function fetchesOf(all: readonly Report[], own: OwnSamples): FleetSamples["fetches"] {
  const merged = new Map<SlowTier, MergedSums & { learnedMs: number }>();
  for (const tier of slowTiers) {
    const reported = all.flatMap(({ times, receivedMs }) =>
      times.fetches
        .filter((one) => one.tier === tier && one.sums.weight > 0)
        .map((one) => ({ ...one.sums, learnedMs: receivedMs - one.ageMs })),
    );
    const learnedMs = Math.max(...reported.map((one) => one.learnedMs));
    const sum = mergeSums(
      reported.map((one) => ({ ...one, ageWeight: ageWeight(learnedMs - one.learnedMs) })),
      // Times close to zero are not distinguished from zero.
      { scale: [1], own: own.fetches(tier), enough: enoughFetches, negligible: leastFetchMs },
    );
    if (sum.merged) merged.set(tier, { ...sum.merged, learnedMs });
  }
  return merged;
}

function differencesOf(all: readonly Aged[], own: OwnSamples): FleetSamples["differences"] {
  const here = new Map([...own.differences()].map(({ key, log, known }) => [key, meanOf(log, known)]));
  const reported = Map.groupBy(
    all.flatMap(({ times, ageWeight: left }) => times.targets.map((target) => ({ ...target, left }))),
    ({ key }) => key,
  );
  const sums = new Map<string, { log: number; known: number }>();
  for (const [key, targets] of reported) {
    const { merged } = mergeSums(
      targets.map(({ log, known, left }) => ({ ...meanOf(left * log, left * known), ageWeight: 1 })),
      { scale: [1], isLogarithm: true, own: here.get(key) ?? meanOf(0, 0), enough: enoughKnown },
    );
    sums.set(key, { log: merged?.right[0] ?? 0, known: merged?.weight ?? 0 });
  }
  return sums;
}
