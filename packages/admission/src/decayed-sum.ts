/** A sum that forgets: what was added counts half after `halfLifeMs`. */
export class DecayedSum {
  readonly #decayPerMs: number;
  #sum = 0;
  #atMs = 0;

  constructor(halfLifeMs: number) {
    this.#decayPerMs = Math.LN2 / halfLifeMs;
  }

  add(amount: number, nowMs: number): void {
    this.#sum = this.at(nowMs) + amount;
    this.#atMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#sum * Math.exp((this.#atMs - nowMs) * this.#decayPerMs);
  }
}
