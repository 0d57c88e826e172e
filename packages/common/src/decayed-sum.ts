/** A sum that forgets: what was added counts half after `halfLifeMs`. */
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

  /** From `nowMs` on the sum is `sum`, whatever it was. */
  set(sum: number, nowMs: number): void {
    this.#sum = sum;
    this.#atMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#sum * Math.exp((this.#atMs - nowMs) * this.#decayPerMs);
  }
}
