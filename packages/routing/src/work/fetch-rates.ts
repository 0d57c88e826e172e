import { NormalEquations } from "@espalier/common";
import { defaultTierCredits } from "@espalier/policies";
import { type FleetSums, leftOf } from "./fleet-sums.ts";
import { errorFloorMs, type FetchedTokens, outlierBound, type SlowTier, slowTiers } from "./learned-times.ts";
import type { FitSums } from "./least-squares.ts";
import type { RatedTarget } from "./prefill-rates.ts";

/** One first token before which an engine fetched blocks from slower tiers, and nothing else than this was in its way. */
interface FetchSample {
  readonly fetched: FetchedTokens;
  /** From when the prompt was sent until its first token. */
  readonly elapsedMs: number;
  /** What of that is expected to be computing. */
  readonly computeMs: number;
  /** When it came, by the monotonic clock. */
  readonly atMs: number;
}

/** What was seen here of a tier. */
export interface OwnFetches {
  readonly msPerKilotoken: number;
  /** Of samples, each by the share of it that is fetching. */
  readonly sums: FitSums;
  /** When the latest of them came, by the monotonic clock. */
  readonly learnedMs: number;
}

/** What is believed of each tier as long as nothing is learned, in milliseconds for a thousand tokens, above zero. */
export type FetchBelief = Readonly<Record<SlowTier, number>>;

/** What the usual credits leave of computing. @param msPerToken of computing */
export function usualFetch(msPerToken: number): FetchBelief {
  const msPerKilotoken = Math.max(leastBelievedMs, 1e3 * msPerToken);
  const { cpu, disk, external } = defaultTierCredits;
  return {
    cpu: (1 - cpu) * msPerKilotoken,
    disk: (1 - disk) * msPerKilotoken,
    external: (1 - external) * msPerKilotoken,
  };
}

/** One tier's part in a sample. */
interface FetchPart {
  readonly kilotokens: number;
  /** What the rest of the sample is expected to take. */
  readonly restMs: number;
  readonly elapsedMs: number;
  /** What the part itself is. */
  readonly fetchMs: number;
  /** How much of the sample is believed to be this part, 0 to 1; and how much of what is fetched. */
  readonly share: number;
  readonly shareOfFetched: number;
  /** Errors count by their share of the whole. */
  readonly scale: number;
}

interface TierRates {
  sums: NormalEquations;
  /** Samples of the beginning, until there are `startSamples`. */
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
 * What it takes the engines of a pool to bring blocks back from slower tiers, learned from the times to first tokens less
 * what computing takes. One number for each tier serves the pool, for its engines mostly have the same links; a target whose
 * link differs by a lasting factor gets that factor.
 */
export class FetchRates {
  readonly #tiers: Readonly<Record<SlowTier, TierRates>> = {
    cpu: emptyTier(),
    disk: emptyTier(),
    external: emptyTier(),
  };
  readonly #fleet: FleetSums | undefined;
  #samples = 0;

  /** @param fleet what other routers know; left out where there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** That were seen here. */
  get samples(): number {
    return this.#samples;
  }

  /** Undefined before anything is seen of the tier here. */
  own(tier: SlowTier, belief: FetchBelief): OwnFetches | undefined {
    const { sums, beliefWeight, learnedMs } = this.#tiers[tier];
    if (sums.weight === 0) return undefined;
    const msPerKilotoken = solve(sums, { ms: belief[tier], weight: beliefWeight, unit: belief[tier] });
    return { msPerKilotoken, sums, learnedMs };
  }

  /** Samples of a tier that were seen here. */
  sums(tier: SlowTier): FitSums {
    return this.#tiers[tier].sums;
  }

  /** For a target, of what this router and others have seen; NaN before anything is learned of the tier. */
  msPerKilotoken(target: RatedTarget, tier: SlowTier, belief: FetchBelief): number {
    const pool = this.#poolMs(tier, belief);
    return pool * this.#factorOf(target, tier, { pool, unit: belief[tier] });
  }

  /** What its engines take, one of them with another; NaN before anything is learned. */
  #poolMs(tier: SlowTier, belief: FetchBelief): number {
    const { sums, beliefWeight, learnedMs } = this.#tiers[tier];
    const others = this.#fleet?.merged?.fetches.get(tier);
    if (sums.weight === 0 && !others) return Number.NaN;
    const believed = { ms: belief[tier], weight: beliefWeight, unit: belief[tier] };
    if (!others) return solve(sums, believed);
    const left = leftOf(learnedMs, others.learnedMs);
    // Who has seen nothing itself goes by the others.
    const believedBy = sums.weight === 0 ? 0 : beliefWeight;
    const weight = Math.max(leastBelief, believedBy * beliefKept ** (left.told * others.weight));
    const of = (own: number, told: number): number => left.own * own + left.told * told;
    const matrix = [of(sums.matrix[0]!, others.matrix[0]!)];
    const right = [of(sums.right[0]!, others.right[0]!)];
    return solve({ matrix, right }, { ...believed, weight });
  }

  /** What a target takes over what the pool's engines take; 1 unless it is known to differ. */
  #factorOf({ index, key }: RatedTarget, tier: SlowTier, { pool, unit }: { pool: number; unit: number }): number {
    const target = this.#tiers[tier].targets[index];
    if (target?.key !== key || !(pool > 0)) return 1;
    const factor = solve(target.sums, { ms: pool, weight: likenessWeight, unit }) / pool;
    return factor > likeness || factor < 1 / likeness ? factor : 1;
  }

  /** Of a target at a place from `maxFetchTargets` on only the pool learns. */
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
    // How far computing is off would pass for fetching.
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
 * The first samples are judged together, for what is believed may be far off, and so may any of them: around the median of
 * what each of them says, the belief counted in.
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

/** @param elsewhere samples that others take in for one that is taken in here */
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

/** Targets of a higher place are taken to be like their pool. */
export const maxFetchTargets = 4_096;

/** Fifty samples later one counts by a third: of a single number few are enough, and links change with what else they carry. */
const memory = 0.98;
const startSamples = 8;
/** Among the first samples what is believed counts as so many. */
const medianBelief = 1;
/** Logarithm up to which a sample is off by chance; beyond it samples pull no harder (Huber's loss). */
const usualError = 0.25;
/** Where computing a thousand tokens seems to take less, fetching is believed to take its part of this. */
const leastBelievedMs = 1;
/** A sample tells nothing of fetching when less of it is believed to be that. */
const leastShare = 0.1;
/** What is believed counts as so many samples: less with each one that is real. */
const firstBelief = 1;
const beliefKept = 0.9;
const leastBelief = 0.02;
/** A target is believed to be like its pool as firmly as so many samples say. */
const likenessWeight = 2;
/** A lasting difference below this factor is not told from chance: engines that are alike must look alike. */
const likeness = 1.22;

function emptyTier(): TierRates {
  const sums = new NormalEquations(1, memory);
  return { sums, first: [], targets: [], beliefWeight: firstBelief, learnedMs: Number.NEGATIVE_INFINITY };
}

interface Expectation {
  readonly ms: number;
  /** It counts as so many samples that are fetching as a whole, which takes `unit` for a thousand tokens. */
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
