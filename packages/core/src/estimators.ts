/** An exponentially decaying sum: an added value counts half after `halfLifeMs`. */
export class DecayedSum {
  readonly #decayPerMs: number;
  #sum = 0;
  #atMs = 0;

  constructor(halfLifeMs: number) {
    this.#decayPerMs = Math.LN2 / halfLifeMs;
  }

  add(amount: number, nowMs: number): void {
    this.set(this.at(nowMs) + amount, nowMs);
  }

  /** Sets the sum to `sum` from `nowMs` on. */
  set(sum: number, nowMs: number): void {
    this.#sum = sum;
    this.#atMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#sum * Math.exp((this.#atMs - nowMs) * this.#decayPerMs);
  }
}

/** Half-life of the tokens served to a tenant. It must be the same in all routers of a fleet. */
export const usageHalfLifeMs = 60_000;

/**
 * The normal equations of a least-squares fit with exponential forgetting: after n more samples of weight 1 an earlier one
 * counts by `memory` to the power n. A solver may add a prior.
 */
export class NormalEquations {
  readonly size: number;
  /** Products of the features with each other: a symmetric matrix by rows. */
  readonly matrix: Float64Array;
  /** Products of the features with the values. */
  readonly right: Float64Array;
  readonly #memory: number;
  #weight = 0;

  /**
   * @param size how many coefficients there are
   * @param memory above 0, below 1
   */
  constructor(size: number, memory: number) {
    this.size = size;
    this.matrix = new Float64Array(size * size);
    this.right = new Float64Array(size);
    this.#memory = memory;
  }

  /** Total remaining weight of all samples. */
  get weight(): number {
    return this.#weight;
  }

  /** Discounts everything so far, as if empty samples of this weight had been added. */
  forget(weight: number): void {
    const kept = this.#memory ** weight;
    this.#weight *= kept;
    for (let place = 0; place < this.matrix.length; place++) this.matrix[place]! *= kept;
    for (let row = 0; row < this.size; row++) this.right[row]! *= kept;
  }

  /** Adds a sample: the features gave `value`. A sample of weight w counts as w samples. */
  add(features: readonly number[], value: number, weight = 1): void {
    const { size, matrix, right } = this;
    const kept = this.#memory ** weight;
    this.#weight = this.#weight * kept + weight;
    for (let row = 0; row < size; row++) {
      for (let column = 0; column < size; column++) {
        const place = row * size + column;
        matrix[place] = matrix[place]! * kept + weight * features[row]! * features[column]!;
      }
      right[row] = right[row]! * kept + weight * features[row]! * value;
    }
  }
}
