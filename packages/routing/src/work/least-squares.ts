/** Unknowns of the systems that are solved here. */
const size = 3;

/**
 * A running least-squares fit of a sum with three coefficients, none of them below zero, that forgets: after n more samples
 * of weight 1 an earlier one counts by `memory` to the power n. It begins with a belief, held as firmly as one sample.
 */
export class NonNegativeFit {
  readonly coefficients: Float64Array;
  readonly #memory: number;
  /** The normal equations: a symmetric matrix by rows, and the right side. */
  readonly #matrix = new Float64Array(size * size);
  readonly #right = new Float64Array(size);
  #weight = 0;

  /**
   * @param belief the coefficients to begin with, above zero
   * @param memory above 0, below 1
   */
  constructor(belief: readonly [number, number, number], memory: number) {
    this.coefficients = Float64Array.from(belief);
    this.#memory = memory;
    for (let at = 0; at < size; at++) {
      this.#matrix[at * size + at] = 1 / belief[at]! ** 2;
      this.#right[at] = 1 / belief[at]!;
    }
  }

  /** Of all samples, as far as they still count; the belief is not one of them. */
  get weight(): number {
    return this.#weight;
  }

  /** What the sum is expected to be. */
  value(first: number, second: number, third: number): number {
    const [one, two, three] = this.coefficients;
    return one! * first + two! * second + three! * third;
  }

  /** Takes in that the sum was `value`. A sample of weight w counts as w samples. */
  add(features: readonly [number, number, number], value: number, weight: number): void {
    const matrix = this.#matrix;
    const right = this.#right;
    const kept = this.#memory ** weight;
    this.#weight = this.#weight * kept + weight;
    for (let row = 0; row < size; row++) {
      for (let column = 0; column < size; column++) {
        const place = row * size + column;
        matrix[place] = matrix[place]! * kept + weight * features[row]! * features[column]!;
      }
      right[row] = right[row]! * kept + weight * features[row]! * value;
    }
    this.#solve();
  }

  /** Coordinate descent: the system is small and well begun, so that a few rounds settle it, and zero is a wall. */
  #solve(): void {
    const { coefficients } = this;
    for (let round = 0; round < descentRounds; round++) {
      for (let row = 0; row < size; row++) {
        let rest = this.#right[row]!;
        for (let column = 0; column < size; column++) {
          if (column !== row) rest -= this.#matrix[row * size + column]! * coefficients[column]!;
        }
        coefficients[row] = Math.max(0, rest / this.#matrix[row * size + row]!);
      }
    }
  }
}

const descentRounds = 12;
