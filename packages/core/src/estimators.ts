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
