import type { Clock } from "@espalier/core";

/** A route that has grown longer shows after twice this time at the latest, a shorter one at once. */
const periodMs = 30_000;
/** No way on Earth takes as long: whatever answers later has been at work, as SGLang's health check is for a second. */
const maxNetworkMs = 500;
/** The first answers tell how busy this router was, when it started, rather than how far the engine is. */
const leastAnswers = 5;

/**
 * How far an engine is from this router: the shortest round trip of the present period and the one before it. The shortest,
 * because an engine that is busy, or a handler that is slow, can only add to the way.
 */
export class RoundTrip {
  readonly #clock: Clock;
  #beganMs = Number.NEGATIVE_INFINITY;
  #before = Number.POSITIVE_INFINITY;
  #now = Number.POSITIVE_INFINITY;
  #answersBefore = 0;
  #answersNow = 0;
  /** In milliseconds. NaN before enough measurements; the last one while the engine does not answer. */
  ms = Number.NaN;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param ms from a request to its answer on an open connection; not a number if that is not known */
  measured(ms: number): void {
    if (!(ms <= maxNetworkMs)) return;
    const passedMs = this.#clock.nowMs() - this.#beganMs;
    if (passedMs >= periodMs) {
      this.#before = passedMs >= 2 * periodMs ? Number.POSITIVE_INFINITY : this.#now;
      this.#answersBefore = passedMs >= 2 * periodMs ? 0 : this.#answersNow;
      this.#now = Number.POSITIVE_INFINITY;
      this.#answersNow = 0;
      this.#beganMs = this.#clock.nowMs();
    }
    this.#now = Math.min(this.#now, ms);
    this.#answersNow += 1;
    if (this.#answersBefore + this.#answersNow >= leastAnswers) this.ms = Math.min(this.#before, this.#now);
  }
}
