import { NormalEquations } from "@espalier/core";
import { defaultTierCredits } from "@espalier/policies";
import { type FleetSums, leftOf } from "./fleet-sums.ts";
import { errorFloorMs, type FetchedTokens, outlierBound, type SlowTier, slowTiers } from "./learned-times.ts";
import type { FitSums } from "./least-squares.ts";
import type { RatedTarget } from "./prefill-rates.ts";

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
  readonly sums: FitSums;
  /** Time of the latest sample, on the monotonic clock. */
  readonly learnedMs: number;
}

/** Prior of each tier, in milliseconds for a thousand tokens, above zero. */
export type FetchBelief = Readonly<Record<SlowTier, number>>;

/** What the default credits leave of computing. @param msPerToken time to compute a token */
export function usualFetch(msPerToken: number): FetchBelief {
  const msPerKilotoken = Math.max(leastBelievedMs, 1e3 * msPerToken);
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
  sums: NormalEquations;
  /** The first samples, until there are `startSamples`. */
  first: FetchPart[] | undefined;
  readonly targets: (TargetRate | undefined)[];
  beliefWeight: number;
  learnedMs: number;
}

interface TargetRate {
  readonly key: string;
  readonly sums: NormalEquations;
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
  own(tier: SlowTier, belief: FetchBelief): OwnFetches | undefined {
    const { sums, beliefWeight, learnedMs } = this.#tiers[tier];
    if (sums.weight === 0) return undefined;
    const msPerKilotoken = solve(sums, { ms: belief[tier], weight: beliefWeight, unit: belief[tier] });
    return { msPerKilotoken, sums, learnedMs };
  }

  /** Sums of own samples of a tier. */
  sums(tier: SlowTier): FitSums {
    return this.#tiers[tier].sums;
  }

  /** Time at a target, from what this router and others have seen; NaN until something is learned about the tier. */
  msPerKilotoken(target: RatedTarget, tier: SlowTier, belief: FetchBelief): number {
    const pool = this.#poolMs(tier, belief);
    return pool * this.#factorOf(target, tier, { pool, unit: belief[tier] });
  }

  /** Mean time of the pool's engines; NaN until something is learned. */
  #poolMs(tier: SlowTier, belief: FetchBelief): number {
    const { sums, beliefWeight, learnedMs } = this.#tiers[tier];
    const others = this.#fleet?.merged?.fetches.get(tier);
    if (sums.weight === 0 && !others) return Number.NaN;
    const believed = { ms: belief[tier], weight: beliefWeight, unit: belief[tier] };
    if (!others) return solve(sums, believed);
    const left = leftOf(learnedMs, others.learnedMs);
    // A router without own samples relies on the others.
    const believedBy = sums.weight === 0 ? 0 : beliefWeight;
    const weight = Math.max(leastBelief, believedBy * beliefKept ** (left.reported * others.weight));
    const of = (own: number, reported: number): number => left.own * own + left.reported * reported;
    const matrix = [of(sums.matrix[0]!, others.matrix[0]!)];
    const right = [of(sums.right[0]!, others.right[0]!)];
    return solve({ matrix, right }, { ...believed, weight });
  }

  /** A target's time relative to the pool's; 1 unless a difference is known. */
  #factorOf({ index, key }: RatedTarget, tier: SlowTier, { pool, unit }: { pool: number; unit: number }): number {
    const target = this.#tiers[tier].targets[index];
    if (target?.key !== key || !(pool > 0)) return 1;
    const factor = solve(target.sums, { ms: pool, weight: likenessWeight, unit }) / pool;
    return factor > likeness || factor < 1 / likeness ? factor : 1;
  }

  /** Targets from index `maxFetchTargets` on teach only the pool. */
  observe(target: RatedTarget, sample: FetchSample, belief: FetchBelief): void {
    const { fetched, elapsedMs, computeMs, atMs } = sample;
    if (!(elapsedMs >= 0 && computeMs >= 0 && elapsedMs + computeMs < Number.POSITIVE_INFINITY)) return;
    const fetches = slowTiers
      .filter((tier) => fetched[tier] > 0)
      .map((tier) => {
        const kilotokens = fetched[tier] / 1e3;
        const known = this.msPerKilotoken(target, tier, belief);
        const ms = kilotokens * (Number.isNaN(known) ? belief[tier] : known);
        return { tier, kilotokens, ms, believedMs: kilotokens * belief[tier] };
      });
    const expectedMs = fetches.reduce((sum, { ms }) => sum + ms, computeMs);
    const believedMs = fetches.reduce((sum, one) => sum + one.believedMs, computeMs);
    // An error in the computing time would look like fetching.
    if (fetches.length === 0 || !(believedMs - computeMs >= leastShare * believedMs)) return;
    const scale = 1 / (believedMs + errorFloorMs);
    for (const { tier: name, kilotokens, ms: fetchMs, believedMs: partMs } of fetches) {
      const shares = { share: partMs / believedMs, shareOfFetched: partMs / (believedMs - computeMs) };
      const part = { kilotokens, fetchMs, restMs: expectedMs - fetchMs, elapsedMs, ...shares, scale };
      const tier = this.#tiers[name];
      tier.learnedMs = atMs;
      if (tier.first) begin(tier, tier.first, part, belief[name]);
      else goOn(tier, target, part, this.#fleet?.merged?.fetches.get(name)?.routers);
    }
    this.#samples++;
  }
}

/**
 * Evaluates the first samples together, because the prior may be far off, and so may any sample. Starts from the median
 * of their estimates, with the prior as one of them.
 */
function begin(tier: TierRates, first: FetchPart[], part: FetchPart, belief: number): void {
  first.push(part);
  const said = first.map((one) => {
    const errorMs = one.elapsedMs - one.restMs - one.fetchMs;
    return { ms: (one.fetchMs + errorMs * one.shareOfFetched) / one.kilotokens, weight: one.share };
  });
  const median = Math.max(0, weightedMedian([{ ms: belief, weight: medianBelief }, ...said]));
  tier.sums = new NormalEquations(1, memory);
  for (const one of first) learn(tier.sums, { ...one, fetchMs: one.kilotokens * median });
  tier.beliefWeight *= beliefKept;
  if (first.length === startSamples) tier.first = undefined;
}

/** @param elsewhere samples that others add for each one added here */
function goOn(tier: TierRates, { index, key }: RatedTarget, part: FetchPart, elsewhere = 0): void {
  if (elsewhere > 0) tier.sums.forget(elsewhere * part.share);
  learn(tier.sums, part);
  tier.beliefWeight = Math.max(leastBelief, tier.beliefWeight * beliefKept);
  if (index >= maxFetchTargets) return;
  let known = tier.targets[index];
  if (known?.key !== key) {
    known = { key, sums: new NormalEquations(1, memory) };
    tier.targets[index] = known;
  }
  learn(known.sums, part);
}

function learn(sums: NormalEquations, part: FetchPart): void {
  const { kilotokens, fetchMs, restMs, elapsedMs, share, shareOfFetched, scale } = part;
  const expectedMs = Math.max(1, restMs + fetchMs);
  const ratio = Math.min(outlierBound, Math.max(1 / outlierBound, elapsedMs / expectedMs));
  const trust = Math.min(1, usualError / Math.abs(Math.log(ratio)));
  const foundMs = fetchMs + (ratio - 1) * expectedMs * shareOfFetched;
  sums.add([kilotokens * scale], foundMs * scale, trust * share);
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
const medianBelief = 1;
/** Logarithm up to which an error is taken for chance; beyond it samples pull no harder (Huber's loss). */
const usualError = 0.25;
/** The prior assumes at least this time for computing a thousand tokens. */
const leastBelievedMs = 1;
/** A sample with a smaller expected share of fetching is ignored. */
const leastShare = 0.1;
/** Weight of the prior in samples; each real one reduces it. */
const firstBelief = 1;
const beliefKept = 0.9;
const leastBelief = 0.02;
/** Weight, in samples, of the prior that a target equals its pool. */
const likenessWeight = 2;
/** A lasting difference below this factor is taken for chance: equal engines must look equal. */
const likeness = 1.22;

function emptyTier(): TierRates {
  const sums = new NormalEquations(1, memory);
  return { sums, first: [], targets: [], beliefWeight: firstBelief, learnedMs: Number.NEGATIVE_INFINITY };
}

interface Expectation {
  readonly ms: number;
  /** Counts as this many samples that consist only of fetching, at `unit` milliseconds for a thousand tokens. */
  readonly weight: number;
  readonly unit: number;
}

function solve({ matrix, right }: Pick<FitSums, "matrix" | "right">, { ms, weight, unit }: Expectation): number {
  const firmness = weight / unit ** 2;
  return Math.max(0, (right[0]! + firmness * ms) / (matrix[0]! + firmness));
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
