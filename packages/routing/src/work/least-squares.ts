import { NormalEquations } from "@espalier/common";

/** Unknowns of the systems that are solved here. */
const size = 3;
type Three = readonly [number, number, number];

/**
 * A running least-squares fit of a sum with three coefficients, none of them below zero, that forgets: after n more samples
 * of weight 1 an earlier one counts by `memory` to the power n. It begins with a belief.
 */
export class NonNegativeFit {
  readonly coefficients: Float64Array;
  readonly #equations: NormalEquations;

  /**
   * @param belief the coefficients to begin with, above zero
   * @param firmness of each, in samples that say that it is so
   * @param memory above 0, below 1
   */
  constructor(belief: Three, firmness: Three, memory: number) {
    this.coefficients = Float64Array.from(belief);
    this.#equations = new NormalEquations(size, memory);
    const { matrix, right } = this.#equations;
    for (let at = 0; at < size; at++) {
      matrix[at * size + at] = firmness[at]! / belief[at]! ** 2;
      right[at] = firmness[at]! / belief[at]!;
    }
  }

  /** Of all samples, as far as they still count; the belief is not one of them. */
  get weight(): number {
    return this.#equations.weight;
  }

  /** What the sum is expected to be. */
  value(first: number, second: number, third: number): number {
    const [one, two, three] = this.coefficients;
    return one! * first + two! * second + three! * third;
  }

  /** Takes in that the sum was `value`. A sample of weight w counts as w samples. */
  add(features: readonly [number, number, number], value: number, weight: number): void {
    this.#equations.add(features, value, weight);
    this.#solve();
  }

  /** Coordinate descent: the system is small and well begun, so that a few rounds settle it, and zero is a wall. */
  #solve(): void {
    const { coefficients } = this;
    const { matrix, right } = this.#equations;
    for (let round = 0; round < descentRounds; round++) {
      for (let row = 0; row < size; row++) {
        let rest = right[row]!;
        for (let column = 0; column < size; column++) {
          if (column !== row) rest -= matrix[row * size + column]! * coefficients[column]!;
        }
        coefficients[row] = Math.max(0, rest / matrix[row * size + row]!);
      }
    }
  }
}

const descentRounds = 12;
