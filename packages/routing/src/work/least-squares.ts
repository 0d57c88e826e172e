import { NormalEquations } from "@espalier/core";

/** Number of unknowns. */
const size = 3;
type Three = readonly [number, number, number];

/**
 * What a least-squares fit needs to know of any number of samples. Sums of two sets of samples add up to sums of both.
 */
export interface FitSums {
  /** Products of the features with each other: a symmetric matrix by rows. */
  readonly matrix: ArrayLike<number>;
  /** Products of the features with the values. */
  readonly right: ArrayLike<number>;
  /** Decayed number of samples. */
  readonly weight: number;
}

/**
 * A running least-squares fit of a sum with three non-negative coefficients, with forgetting: after n more samples of
 * weight 1 an earlier one counts by `memory` to the power n. It starts from a prior, and also takes in the sums of
 * other routers' samples.
 */
export class NonNegativeFit {
  readonly coefficients: Float64Array;
  readonly #equations: NormalEquations;
  readonly #belief: Three;
  readonly #firmness: Three;
  readonly #memory: number;
  /** What is left of the prior, which is forgotten like a sample. */
  #beliefLeft = 1;
  #others: FitSums | undefined;
  #ownLeft = 1;

  /**
   * @param belief the prior coefficients, above zero
   * @param firmness weight of each, in samples
   * @param memory above 0, below 1
   */
  constructor(belief: Three, firmness: Three, memory: number) {
    this.coefficients = Float64Array.from(belief);
    this.#equations = new NormalEquations(size, memory);
    this.#belief = belief;
    this.#firmness = firmness;
    this.#memory = memory;
  }

  /** Sums of own samples, without the prior. */
  get sums(): FitSums {
    return this.#equations;
  }

  /** The coefficients without the samples of others. */
  alone(): Float64Array {
    const coefficients = this.coefficients.slice();
    if (this.#others) this.#solveFor(coefficients, undefined);
    return coefficients;
  }

  /** The expected value of the sum. */
  value(first: number, second: number, third: number): number {
    const [one, two, three] = this.coefficients;
    return one! * first + two! * second + three! * third;
  }

  /** Includes the samples of peers from now on. @param ownLeft the weight of own samples, up to 1 */
  include(others: FitSums | undefined, ownLeft: number): void {
    this.#others = others;
    this.#ownLeft = ownLeft;
    this.#solve();
  }

  /**
   * Adds the sample that the sum was `value`. A sample of weight w counts as w samples.
   *
   * @param elsewhere samples that others add for each one added here, so that all forget at the rate of one router that
   * adds them all
   */
  add(features: Three, value: number, weight: number, elsewhere = 0): void {
    if (elsewhere > 0) this.#equations.forget(elsewhere * weight);
    this.#equations.add(features, value, weight);
    this.#beliefLeft *= this.#memory ** ((1 + elsewhere) * weight);
    this.#solve();
  }

  /**
   * Coordinate descent: the system is small and starts near the solution, so a few rounds suffice, and coefficients
   * stop at zero. The prior counts once, however many routers have samples, and only as far as those samples have not
   * replaced it.
   */
  #solve(): void {
    this.#solveFor(this.coefficients, this.#others);
  }

  #solveFor(coefficients: Float64Array, others: FitSums | undefined): void {
    const peerDecay = others ? Math.max(leastBelief, 1 - (1 - this.#memory) * others.weight) : 1;
    const matrix = new Float64Array(size * size);
    const right = new Float64Array(size);
    addSums({ matrix, right }, this.#equations, others ? this.#ownLeft : 1);
    if (others) addSums({ matrix, right }, others, 1);
    for (let at = 0; at < size; at++) {
      const firmness = this.#firmness[at]! * this.#beliefLeft * peerDecay;
      matrix[at * size + at]! += firmness / this.#belief[at]! ** 2;
      right[at]! += firmness / this.#belief[at]!;
    }
    descend({ matrix, right }, coefficients);
  }
}

/** Adds this multiple of some sums to others of the same size. */
export function addSums(
  to: { readonly matrix: Float64Array; readonly right: Float64Array },
  { matrix, right }: Pick<FitSums, "matrix" | "right">,
  share: number,
): void {
  for (let place = 0; place < to.matrix.length; place++) to.matrix[place]! += share * matrix[place]!;
  for (let row = 0; row < to.right.length; row++) to.right[row]! += share * right[row]!;
}

/** A copy of the present sums. */
export function copyOf({ matrix, right, weight }: FitSums): FitSums {
  return { matrix: Float64Array.from(matrix), right: Float64Array.from(right), weight };
}

function descend({ matrix, right }: Pick<FitSums, "matrix" | "right">, coefficients: Float64Array): void {
  for (let round = 0; round < maxRounds; round++) {
    let change = 0;
    for (let row = 0; row < size; row++) {
      let rest = right[row]!;
      for (let column = 0; column < size; column++) {
        if (column !== row) rest -= matrix[row * size + column]! * coefficients[column]!;
      }
      const before = coefficients[row]!;
      const after = Math.max(0, rest / matrix[row * size + row]!);
      coefficients[row] = after;
      change = Math.max(change, Math.abs(after - before) / Math.max(after, before, least));
    }
    if (round >= leastRounds && change < settled) return;
  }
}

/** This much of the prior always stays: samples that are all alike leave a fit undetermined. */
const leastBelief = 0.001;
const leastRounds = 12;
const maxRounds = 200;
const settled = 1e-6;
const least = 1e-12;
