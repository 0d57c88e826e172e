import { DecayedSum } from "@espalier/core";

const halfLifeMs = 10_000;
/** A queue that was empty for this long starts to learn its drain rate anew. */
const forgetMs = 60_000;
/** Less observed time than this gives no estimate. */
const leastMs = 500;

/** How fast a queue drains, learned while requests wait in it. */
export class DrainRate {
  #tokens = new DecayedSum(halfLifeMs);
  /** Time during which requests waited, decayed like the tokens. */
  #busyMs = new DecayedSum(halfLifeMs);
  #lastMs = Number.NEGATIVE_INFINITY;

  /** Requests are waiting now. @param begins whether the queue was empty since the last call */
  waiting(begins: boolean, nowMs: number): void {
    if (nowMs - this.#lastMs > forgetMs) {
      this.#tokens = new DecayedSum(halfLifeMs);
      this.#busyMs = new DecayedSum(halfLifeMs);
    } else if (!begins) this.#busyMs.add(nowMs - this.#lastMs, nowMs);
    this.#lastMs = nowMs;
  }

  /** Prompt tokens that left the queue while requests waited. */
  left(tokens: number, nowMs: number): void {
    this.#tokens.add(tokens, nowMs);
  }

  /** Expected milliseconds until this many tokens have left; undefined while unknown. */
  predictMs(tokens: number, nowMs: number): number | undefined {
    const busyMs = this.#busyMs.at(nowMs);
    const left = this.#tokens.at(nowMs);
    return busyMs < leastMs || left <= 0 ? undefined : (tokens * busyMs) / left;
  }
}
