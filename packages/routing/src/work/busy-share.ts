import type { Clock } from "@espalier/common";

/**
 * Which share of the time engines compute prompts, by what was sent to them over the last minute: the rho of queueing theory.
 * It is that of the engines among which a request chooses: what others are sent, such as jobs in lanes of their own, makes
 * nobody wait here.
 */
export class BusyShare {
  readonly #clock: Clock;
  readonly #startMs: number;
  /** Of each target, in milliseconds of work; later work counts more, by `e` for each window since the base. */
  #work = new Float64Array(firstTargets);
  #baseMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startMs = clock.nowMs();
    this.#baseMs = this.#startMs;
  }

  /** @param target its index */
  sent(target: number, workMs: number): void {
    if (target >= this.#work.length) this.#grow(target + 1);
    if (this.#windows() > maxWindows) this.#rebase();
    this.#work[target]! += workMs * Math.exp(this.#windows());
  }

  /** What was sent to a target, the more the later. Sums of it over targets are what `of` takes. */
  sentTo(target: number): number {
    return this.#work[target] ?? 0;
  }

  /**
   * @param sent the sum of `sentTo` over the engines
   * @param engines that share the work
   * @param routers that each send as much as this one
   * @returns 0 to `maxBusyShare`
   */
  of(sent: number, engines: number, routers: number): number {
    const workMs = sent / Math.exp(this.#windows());
    // What was seen of the first minute stands for the whole of it.
    const seen = 1 - Math.exp((this.#startMs - this.#clock.nowMs() - leastSeenMs) / windowMs);
    const share = (workMs * routers) / (windowMs * seen * Math.max(1, engines));
    return Math.min(maxBusyShare, caution * share);
  }

  /** Since the base. */
  #windows(): number {
    return (this.#clock.nowMs() - this.#baseMs) / windowMs;
  }

  /** Before the work of now counts too much to count with. */
  #rebase(): void {
    const shrink = Math.exp(-this.#windows());
    for (let target = 0; target < this.#work.length; target++) this.#work[target]! *= shrink;
    this.#baseMs = this.#clock.nowMs();
  }

  #grow(least: number): void {
    const grown = new Float64Array(Math.max(least, 2 * this.#work.length));
    grown.set(this.#work);
    this.#work = grown;
  }
}

/** Past it a queue has no end, and affinity would be all that counts. */
export const maxBusyShare = 0.9;
const windowMs = 60_000;
const leastSeenMs = 1_000;
/** Engines do other things than prefill. */
const caution = 1.15;
const firstTargets = 16;
const maxWindows = 100;
