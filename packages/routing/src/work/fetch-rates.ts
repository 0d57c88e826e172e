import { DecayedRegression, type Moments, type SampleSums } from "@espalier/core";
import { defaultTierCredits } from "@espalier/policies";
import { ageWeights, type FleetSums } from "./fleet-sums.ts";
import { type FetchedTokens, type SlowTier, slowTiers } from "./learned-times.ts";
import type { RatedTarget } from "./prefill-rates.ts";
import { boundError, errorFloorMs } from "./sample-error.ts";

/**
 * One first token for which an engine only had to fetch blocks from slower tiers and compute, without any other delay.
 */
interface FetchSample {
  readonly fetched: FetchedTokens;
  /** From sending the prompt to its first token. */
  readonly elapsedMs: number;
  /** Expected part of computing in it. */
  readonly computeMs: number;
  /** Time of the first token, on the monotonic clock. */
  readonly atMs: number;
}

/** What this router has seen of a tier. */
export interface OwnFetches {
  readonly msPerKilotoken: number;
  /** Sums of samples, each weighted by its share of fetching. */
  readonly sums: SampleSums;
  /** Time of the latest sample, on the monotonic clock. */
  readonly learnedMs: number;
}

/** Prior of each tier, in milliseconds for a thousand tokens, above zero. */
export type FetchPrior = Readonly<Record<SlowTier, number>>;

/** What the default credits leave of computing. @param msPerToken time to compute a token */
export function priorFetch(msPerToken: number): FetchPrior {
  const msPerKilotoken = Math.max(leastPriorMs, 1e3 * msPerToken);
  const { cpu, disk, external } = defaultTierCredits;
  return {
    cpu: (1 - cpu) * msPerKilotoken,
    disk: (1 - disk) * msPerKilotoken,
    external: (1 - external) * msPerKilotoken,
    peer: (1 - cpu) * msPerKilotoken,
  };
}

/** One tier's part in a sample. */
interface FetchPart {
  readonly kilotokens: number;
  /** Expected time of the rest of the sample. */
  readonly restMs: number;
  readonly elapsedMs: number;
  /** Time of this part. */
  readonly fetchMs: number;
  /** Share of the sample that is believed to be this part, 0 to 1; and its share of all fetching. */
  readonly share: number;
  readonly shareOfFetched: number;
  /** Errors are relative to the whole. */
  readonly scale: number;
}

interface TierRates {
  own: DecayedRegression;
  /** The first samples, until there are `startSamples`. */
  first: FetchPart[] | undefined;
  readonly targets: (TargetRate | undefined)[];
  learnedMs: number;
}

interface TargetRate {
  readonly key: string;
  readonly own: DecayedRegression;
}

/**
 * How long the engines of a pool take to fetch blocks from slower tiers, learned from times to first token minus
 * computing. One number per tier serves the pool, because its engines mostly have equal links. A target whose link
 * differs by a lasting factor gets that factor.
 */
export class FetchRates {
  readonly #tiers: Readonly<Record<SlowTier, TierRates>> = {
    cpu: emptyTier(),
    disk: emptyTier(),
    external: emptyTier(),
    peer: emptyTier(),
  };
  readonly #fleet: FleetSums | undefined;
  #samples = 0;

  /** @param fleet what other routers know; absent if there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** Number of own samples. */
  get samples(): number {
    return this.#samples;
  }

  /** Undefined before this router has seen anything of the tier. */
  own(tier: SlowTier, prior: FetchPrior): OwnFetches | undefined {
    const { own, learnedMs } = this.#tiers[tier];
    if (own.weight === 0) return undefined;
    const [msPerKilotoken] = own.solve(priorOf(prior[tier], own.priorWeight()));
    return { msPerKilotoken: msPerKilotoken!, sums: own, learnedMs };
  }

  /** Sums of own samples of a tier. */
  sums(tier: SlowTier): SampleSums {
    return this.#tiers[tier].own;
  }

  /** Time at a target, from what this router and others have seen; NaN until something is learned about the tier. */
  msPerKilotoken({ index, key }: RatedTarget, tier: SlowTier, prior: FetchPrior): number {
    const pool = this.#poolMs(tier, prior);
    const target = this.#tiers[tier].targets[index];
    if (target?.key !== key || !(pool > 0)) return pool;
    const [found] = target.own.solve(priorOf(prior[tier], likenessWeight, pool));
    const factor = found! / pool;
    return factor > likeness || factor < 1 / likeness ? found! : pool;
  }

  /** Mean time of the pool's engines; NaN until something is learned. */
  #poolMs(tier: SlowTier, prior: FetchPrior): number {
    const { own, learnedMs } = this.#tiers[tier];
    const sums = this.#fleet?.merged?.fetches.get(tier);
    if (own.weight === 0 && !sums) return Number.NaN;
    const others = sums && { sums, ...ageWeights(learnedMs, sums.learnedMs) };
    // A router without own samples relies on the others.
    const priorWeight = own.weight === 0 ? leastPrior : own.priorWeight(others);
    return own.solve(priorOf(prior[tier], priorWeight), others)[0]!;
  }

  /** Targets from index `maxFetchTargets` on teach only the pool. */
  observe(target: RatedTarget, sample: FetchSample, prior: FetchPrior): void {
    const { fetched, elapsedMs, computeMs, atMs } = sample;
    if (!(elapsedMs >= 0 && computeMs >= 0 && elapsedMs + computeMs < Number.POSITIVE_INFINITY)) return;
    const fetches = slowTiers
      .filter((tier) => fetched[tier] > 0)
      .map((tier) => {
        const kilotokens = fetched[tier] / 1e3;
        const known = this.msPerKilotoken(target, tier, prior);
        const ms = kilotokens * (Number.isNaN(known) ? prior[tier] : known);
        return { tier, kilotokens, ms, priorMs: kilotokens * prior[tier] };
      });
    const expectedMs = fetches.reduce((sum, { ms }) => sum + ms, computeMs);
    const priorMs = fetches.reduce((sum, one) => sum + one.priorMs, computeMs);
    // An error in the computing time would look like fetching.
    if (fetches.length === 0 || !(priorMs - computeMs >= leastShare * priorMs)) return;
    const scale = 1 / (priorMs + errorFloorMs);
    for (const { tier: name, kilotokens, ms: fetchMs, priorMs: partMs } of fetches) {
      const shares = { share: partMs / priorMs, shareOfFetched: partMs / (priorMs - computeMs) };
      const part = { kilotokens, fetchMs, restMs: expectedMs - fetchMs, elapsedMs, ...shares, scale };
      const tier = this.#tiers[name];
      tier.learnedMs = atMs;
      if (tier.first) begin(tier, tier.first, part, prior[name]);
      else learnMore(tier, target, part, this.#fleet?.merged?.fetches.get(name)?.routers);
    }
    this.#samples++;
  }
}

/**
 * Evaluates the first samples together, because the prior may be far off, and so may any sample. Starts from the median
 * of their estimates, with the prior as one of them.
 */
function begin(tier: TierRates, first: FetchPart[], part: FetchPart, priorMs: number): void {
  first.push(part);
  const estimates = first.map((one) => {
    const errorMs = one.elapsedMs - one.restMs - one.fetchMs;
    return { ms: (one.fetchMs + errorMs * one.shareOfFetched) / one.kilotokens, weight: one.share };
  });
  const median = Math.max(0, weightedMedian([{ ms: priorMs, weight: medianPrior }, ...estimates]));
  tier.own = tierRegression();
  for (const one of first) {
    learn(tier.own, { ...one, fetchMs: one.kilotokens * median });
    tier.own.weakenPrior();
  }
  if (first.length === startSamples) tier.first = undefined;
}

/** @param elsewhere samples that others add for each one added here */
function learnMore(tier: TierRates, { index, key }: RatedTarget, part: FetchPart, elsewhere = 0): void {
  learn(tier.own, part, elsewhere);
  tier.own.weakenPrior();
  if (index >= maxFetchTargets) return;
  let known = tier.targets[index];
  if (known?.key !== key) {
    known = { key, own: new DecayedRegression([0], memory) };
    tier.targets[index] = known;
  }
  learn(known.own, part);
}

function learn(own: DecayedRegression, part: FetchPart, elsewhere = 0): void {
  const { kilotokens, fetchMs, restMs, elapsedMs, share, shareOfFetched, scale } = part;
  const expectedMs = Math.max(1, restMs + fetchMs);
  const { ratio, weight } = boundError(elapsedMs / expectedMs);
  const foundMs = fetchMs + (ratio - 1) * expectedMs * shareOfFetched;
  own.add({ features: [kilotokens * scale], value: foundMs * scale, weight: weight * share }, elsewhere);
}

/** Targets with a higher index count as equal to their pool. */
export const maxFetchTargets = 4_096;

/**
 * After fifty more samples a sample counts by a third. One number needs few samples, and links change with their other
 * traffic.
 */
const memory = 0.98;
const startSamples = 8;
/** The prior counts as this many of the first samples. */
const medianPrior = 1;
/** The prior assumes at least this time for computing a thousand tokens. */
const leastPriorMs = 1;
/** A sample with a smaller expected share of fetching is ignored. */
const leastShare = 0.1;
const leastPrior = 0.02;
/** Weight, in samples, of the prior that a target equals its pool. */
const likenessWeight = 2;
/** A lasting difference below this factor is taken for chance: equal engines must look equal. */
const likeness = 1.22;

function emptyTier(): TierRates {
  return { own: tierRegression(), first: [], targets: [], learnedMs: Number.NEGATIVE_INFINITY };
}

function tierRegression(): DecayedRegression {
  return new DecayedRegression([0], memory, { first: 1, kept: 0.9, least: leastPrior });
}

/**
 * A sample that consists only of fetching a thousand tokens.
 *
 * @param unitMs its assumed time, relative to which its error counts
 */
function priorOf(unitMs: number, weight: number, ms = unitMs): Moments {
  const square = weight / unitMs ** 2;
  return { matrix: [square], right: [square * ms] };
}

function weightedMedian(all: readonly { readonly ms: number; readonly weight: number }[]): number {
  const inOrder = [...all].sort((one, other) => one.ms - other.ms);
  const half = inOrder.reduce((sum, { weight }) => sum + weight, 0) / 2;
  let seen = 0;
  const median = inOrder.find(({ weight }) => {
    seen += weight;
    return seen >= half;
  });
  return median!.ms;
}
