import type { Clock } from "@espalier/common";

/**
 * Which share of the time the engines of a pool compute prompts, by what was sent to them over the last minute: the rho of
 * queueing theory.
 */
export class BusyShare {
  readonly #clock: Clock;
  readonly #startMs: number;
  #work = 0;
  #atMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startMs = clock.nowMs();
    this.#atMs = this.#startMs;
  }

  sent(workMs: number): void {
    this.#decay();
    this.#work += workMs;
  }

  /**
   * @param engines that share the work
   * @param routers that each send as much as this one
   * @returns 0 to `maxBusyShare`
   */
  of(engines: number, routers: number): number {
    this.#decay();
    // What was seen of the first minute stands for the whole of it.
    const seen = 1 - Math.exp((this.#startMs - this.#atMs - leastSeenMs) / windowMs);
    const share = (this.#work * routers) / (windowMs * seen * Math.max(1, engines));
    return Math.min(maxBusyShare, caution * share);
  }

  #decay(): void {
    const nowMs = this.#clock.nowMs();
    this.#work *= Math.exp((this.#atMs - nowMs) / windowMs);
    this.#atMs = nowMs;
  }
}

/** Past it a queue has no end, and affinity would be all that counts. */
export const maxBusyShare = 0.9;
const windowMs = 60_000;
const leastSeenMs = 1_000;
/** Engines do other things than prefill. */
const caution = 1.15;
