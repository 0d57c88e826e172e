import { DecayedSum } from "@espalier/common";

const halfLifeMs = 10_000;
/** A queue that was empty for so long begins anew to learn how fast it drains. */
const forgetMs = 60_000;
/** Of less than this time nothing is concluded. */
const leastMs = 500;

/** How fast a queue drains, learned while it does. */
export class DrainRate {
  #tokens = new DecayedSum(halfLifeMs);
  /** Time in which requests waited, decayed as the tokens are. */
  #busyMs = new DecayedSum(halfLifeMs);
  #lastMs = Number.NEGATIVE_INFINITY;

  /** Requests wait now, as they did at the last call unless `begins`. */
  waiting(begins: boolean, nowMs: number): void {
    if (nowMs - this.#lastMs > forgetMs) {
      this.#tokens = new DecayedSum(halfLifeMs);
      this.#busyMs = new DecayedSum(halfLifeMs);
    } else if (!begins) this.#busyMs.add(nowMs - this.#lastMs, nowMs);
    this.#lastMs = nowMs;
  }

  /** So many tokens of prompts left while requests waited. */
  left(tokens: number, nowMs: number): void {
    this.#tokens.add(tokens, nowMs);
  }

  /** Milliseconds until so many tokens have left; undefined while that is not known. */
  predictMs(tokens: number, nowMs: number): number | undefined {
    const busyMs = this.#busyMs.at(nowMs);
    const left = this.#tokens.at(nowMs);
    return busyMs < leastMs || left <= 0 ? undefined : (tokens * busyMs) / left;
  }
}
