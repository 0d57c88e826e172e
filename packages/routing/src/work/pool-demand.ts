import { type Clock, DecayedSum } from "@espalier/core";
import { BatchLimits } from "./batch-limits.ts";
import type { PromptPart } from "./prefill-rates.ts";

/** Half-life of the rate of arrivals: the rate of Poisson arrivals is known to a tenth from two requests per second on. */
const rateHalfLifeMs = 20_000;
/** What was seen in less time stands for this long, or the first request of a pool would look like a flood. */
const leastSeenMs = 10_000;
/** After fifty more requests a request's cost counts by a third. */
const memory = 0.98;
/** Prefill of a usual GPU, in tokens per millisecond, until something was computed. */
const usualTokensPerMs = 12;
/** Length of an answer until one has ended. */
const usualOutputTokens = 256;

/** What this router measures of the load of one pool: how often requests come, and what one costs the engines. */
export class PoolDemand {
  readonly limits = new BatchLimits();
  readonly #clock: Clock;
  readonly #startMs: number;
  readonly #arrivals = new DecayedSum(rateHalfLifeMs);
  #lastMs = Number.NEGATIVE_INFINITY;
  /** Of requests that arrived. */
  readonly #promptTokens = new Mean();
  readonly #outputTokens = new Mean();
  /** Of prompts that were sent to engines. */
  readonly #workMs = new Mean();
  readonly #sentTokens = new Mean();
  readonly #uncachedTokens = new Mean();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startMs = clock.nowMs();
  }

  /** A request arrived, whatever becomes of it. */
  arrived(promptTokens: number): void {
    this.#lastMs = this.#clock.nowMs();
    this.#arrivals.add(1, this.#lastMs);
    this.#promptTokens.add(promptTokens);
  }

  /** A prompt was sent to an engine, which needs so long for it. */
  sent({ uncachedTokens, matchedTokens }: PromptPart, workMs: number): void {
    this.#workMs.add(workMs);
    this.#sentTokens.add(uncachedTokens + matchedTokens);
    this.#uncachedTokens.add(uncachedTokens);
  }

  /** An answer is complete. */
  answered(outputTokens: number): void {
    this.#outputTokens.add(outputTokens);
  }

  get requestsPerS(): number {
    const nowMs = this.#clock.nowMs();
    const seenMs = Math.max(leastSeenMs, nowMs - this.#startMs);
    const windowMs = (rateHalfLifeMs / Math.LN2) * (1 - 2 ** (-seenMs / rateHalfLifeMs));
    return (1_000 * this.#arrivals.at(nowMs)) / windowMs;
  }

  /** Milliseconds that an engine computes for the prompt of a request, less what caches save. */
  get promptMs(): number {
    const tokens = this.#promptTokens.value ?? 0;
    return tokens * (ratio(this.#workMs, this.#sentTokens) ?? 1 / usualTokensPerMs);
  }

  get msPerUncachedToken(): number {
    return ratio(this.#workMs, this.#uncachedTokens) ?? 1 / usualTokensPerMs;
  }

  /** Tokens of an answer. */
  get outputTokens(): number {
    return this.#outputTokens.value ?? usualOutputTokens;
  }

  /** Milliseconds since the last request; Infinity before the first. */
  get idleMs(): number {
    return this.#clock.nowMs() - this.#lastMs;
  }
}

/** A mean in which earlier values count less with each later one. */
class Mean {
  #sum = 0;
  #weight = 0;

  add(value: number): void {
    this.#sum = this.#sum * memory + value;
    this.#weight = this.#weight * memory + 1;
  }

  /** Undefined before the first value. */
  get value(): number | undefined {
    return this.#weight > 0 ? this.#sum / this.#weight : undefined;
  }
}

/** The ratio of two means of the same requests; undefined while there is none. */
function ratio(one: Mean, other: Mean): number | undefined {
  return other.value ? (one.value ?? 0) / other.value : undefined;
}
