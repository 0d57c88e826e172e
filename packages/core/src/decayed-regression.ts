/** What a least-squares fit needs to know of any number of samples. */
export interface Moments {
  /** Products of the features with each other: a symmetric matrix by rows. */
  readonly matrix: ArrayLike<number>;
  /** Products of the features with the values. */
  readonly right: ArrayLike<number>;
}

/** Moments of samples, and how many they are. Those of two sets of samples add up to those of both. */
export interface SampleSums extends Moments {
  /** Decayed number of samples. */
  readonly weight: number;
}

/** Some features gave a value. */
export interface Sample {
  readonly features: readonly number[];
  readonly value: number;
  /** A sample of weight w counts as w samples. */
  readonly weight: number;
}

/** Samples of peers, and the shares of own samples and of theirs that count in a solution. */
export interface PeerSamples {
  readonly sums: SampleSums;
  readonly own: number;
  readonly reported: number;
}

/** How samples replace a prior. */
export interface PriorDecay {
  /** Weight before the first sample. */
  readonly first: number;
  /** What a sample leaves of it. */
  readonly kept: number;
  /** What is always left: samples that are all alike do not determine coefficients. */
  readonly least: number;
}

const noPrior: PriorDecay = { first: 0, kept: 0, least: 0 };

/**
 * A running least-squares fit of a sum with non-negative coefficients, with exponential forgetting: after n more samples
 * of weight 1 an earlier one counts by `memory` to the power n. A solution adds a prior and the samples of peers.
 */
export class DecayedRegression implements SampleSums {
  readonly matrix: Float64Array;
  readonly right: Float64Array;
  /** Of the last solution. */
  readonly coefficients: Float64Array;
  readonly #memory: number;
  readonly #prior: PriorDecay;
  /** All that counts in a solution. */
  readonly #total: MutableMoments;
  #weight = 0;
  #priorWeight: number;

  /**
   * @param coefficients where the first solution is searched
   * @param memory above 0, below 1
   */
  constructor(coefficients: readonly number[], memory: number, prior = noPrior) {
    const size = coefficients.length;
    this.matrix = new Float64Array(size ** 2);
    this.right = new Float64Array(size);
    this.coefficients = Float64Array.from(coefficients);
    this.#memory = memory;
    this.#prior = prior;
    this.#total = { matrix: new Float64Array(size ** 2), right: new Float64Array(size) };
    this.#priorWeight = prior.first;
  }

  /** Remaining weight of all own samples. */
  get weight(): number {
    return this.#weight;
  }

  /**
   * Adds a sample of this router.
   *
   * @param elsewhere samples that peers add for each one added here, so that all forget at the rate of one router that
   * adds them all
   */
  add(sample: Sample, elsewhere = 0): void {
    if (elsewhere > 0) this.#forget(elsewhere * sample.weight);
    this.#forget(sample.weight);
    this.#weight += sample.weight;
    addSample(this, sample);
  }

  /** Samples replace the prior. */
  weakenPrior(samples = 1): void {
    this.#priorWeight = Math.max(this.#prior.least, this.#priorWeight * this.#prior.kept ** samples);
  }

  /** Remaining weight of the prior. Samples of peers replace it like own ones. */
  priorWeight(peers?: PeerSamples): number {
    if (!peers) return this.#priorWeight;
    const { kept, least } = this.#prior;
    // So many samples in a row weigh that much at the end.
    const left = Math.max(0, 1 - (1 - this.#memory) * peers.reported * peers.sums.weight);
    return Math.max(least, this.#priorWeight * kept ** (Math.log(left) / Math.log(this.#memory)));
  }

  /** The expected value. */
  value(features: readonly number[]): number {
    let sum = 0;
    for (let row = 0; row < features.length; row++) sum += this.coefficients[row]! * features[row]!;
    return sum;
  }

  /**
   * @param prior moments of samples that nobody has seen, by the prior's weight
   * @param coefficients where the search starts
   * @returns these, moved to the least squares
   */
  solve(prior: Moments, peers?: PeerSamples, coefficients = this.coefficients): Float64Array {
    if (coefficients.length === 1) {
      coefficients[0] = this.#mean(prior, peers);
      return coefficients;
    }
    const total = this.#total;
    total.matrix.fill(0);
    total.right.fill(0);
    addMoments(total, this, peers?.own ?? 1);
    if (peers) addMoments(total, peers.sums, peers.reported);
    addMoments(total, prior, 1);
    if (!solveLine(total, coefficients)) descend(total, coefficients);
    return coefficients;
  }

  /** The only coefficient, which is asked for often. */
  #mean(prior: Moments, peers: PeerSamples | undefined): number {
    let square = this.matrix[0]!;
    let product = this.right[0]!;
    if (peers) {
      const { sums, own, reported } = peers;
      square = own * square + reported * sums.matrix[0]!;
      product = own * product + reported * sums.right[0]!;
    }
    square += prior.matrix[0]!;
    return square > 0 ? Math.max(0, (product + prior.right[0]!) / square) : 0;
  }

  #forget(weight: number): void {
    const kept = this.#memory ** weight;
    this.#weight *= kept;
    for (let place = 0; place < this.matrix.length; place++) this.matrix[place]! *= kept;
    for (let row = 0; row < this.right.length; row++) this.right[row]! *= kept;
  }
}

interface MutableMoments {
  readonly matrix: Float64Array;
  readonly right: Float64Array;
}

/** Adds moments, multiplied by their share, to others of the same size. */
export function addMoments(to: MutableMoments, { matrix, right }: Moments, share: number): void {
  for (let place = 0; place < to.matrix.length; place++) to.matrix[place]! += share * matrix[place]!;
  for (let row = 0; row < to.right.length; row++) to.right[row]! += share * right[row]!;
}

/** The sums of these samples, as many features as the first one has. */
export function sumsOf(samples: readonly Sample[]): SampleSums {
  const size = samples[0]?.features.length ?? 0;
  const sums = { matrix: new Float64Array(size ** 2), right: new Float64Array(size), weight: 0 };
  for (const sample of samples) {
    addSample(sums, sample);
    sums.weight += sample.weight;
  }
  return sums;
}

/** A copy of present sums. */
export function copyOfSums({ matrix, right, weight }: SampleSums): SampleSums {
  return { matrix: Float64Array.from(matrix), right: Float64Array.from(right), weight };
}

function addSample({ matrix, right }: MutableMoments, { features, value, weight }: Sample): void {
  const size = right.length;
  for (let row = 0; row < size; row++) {
    const part = weight * features[row]!;
    for (let column = 0; column < size; column++) matrix[row * size + column]! += part * features[column]!;
    right[row]! += part * value;
  }
}

/**
 * Two coefficients exactly: descent would take long where samples are almost alike.
 *
 * @returns whether there are two, and the samples determine them
 */
function solveLine({ matrix, right }: MutableMoments, coefficients: Float64Array): boolean {
  const [a, b, , d] = matrix;
  const [first, second] = right;
  const determinant = right.length === 2 ? a! * d! - b! * b! : 0;
  if (!(determinant > 0)) return false;
  const slope = Math.max(0, (a! * second! - b! * first!) / determinant);
  const base = (first! - slope * b!) / a!;
  coefficients[0] = Math.max(0, base);
  coefficients[1] = base < 0 ? second! / d! : slope;
  return true;
}

/**
 * Coordinate descent: the system is small and starts near the solution, so a few rounds suffice, and coefficients stop
 * at zero. Features that no sample has count for nothing.
 */
function descend({ matrix, right }: MutableMoments, coefficients: Float64Array): void {
  const size = right.length;
  for (let round = 0; round < maxRounds; round++) {
    let change = 0;
    for (let row = 0; row < size; row++) {
      let rest = right[row]!;
      for (let column = 0; column < size; column++) {
        if (column !== row) rest -= matrix[row * size + column]! * coefficients[column]!;
      }
      const before = coefficients[row]!;
      const diagonal = matrix[row * size + row]!;
      const after = diagonal > 0 ? Math.max(0, rest / diagonal) : 0;
      coefficients[row] = after;
      change = Math.max(change, Math.abs(after - before) / Math.max(after, before, least));
    }
    if (round >= leastRounds && change < settled) return;
  }
}

const leastRounds = 12;
/** Rounds of the solver; it usually settles long before. */
const maxRounds = 200;
const settled = 1e-6;
const least = 1e-12;
