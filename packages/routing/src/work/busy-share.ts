import type { Clock } from "@espalier/core";
import type { SharedLoad } from "@espalier/shared-tree";

/**
 * Share of the time in which engines compute prompts, from what all routers sent to them over the last minute: the rho
 * of queueing theory. It covers only the engines among which a request chooses. Work at other engines, such as that of
 * other class partitions, makes no request wait here.
 */
export class BusyShare {
  readonly #clock: Clock;
  readonly #startMs: number;
  /** By target, in milliseconds of work. Later work counts more, by a factor of `e` per window since the base. */
  #work = new Float64Array(firstTargets);
  /** By target, what the others had sent when this was last read, and that time; -Infinity before. */
  #reportedMs = new Float64Array(firstTargets);
  #readMs = new Float64Array(firstTargets).fill(Number.NEGATIVE_INFINITY);
  #baseMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startMs = clock.nowMs();
    this.#baseMs = this.#startMs;
  }

  /** This router sends work. @param target its index */
  sent(target: number, workMs: number): void {
    if (target >= this.#work.length) this.#grow(target + 1);
    if (this.#windows() > maxWindows) this.#rebase();
    this.#work[target]! += workMs * Math.exp(this.#windows());
  }

  /** Adds what other routers have sent to a target since the last call. Assumes that it arrived evenly. */
  receive(target: number, { sentWorkMs, sinceMs }: Pick<SharedLoad, "sentWorkMs" | "sinceMs">, nowMs: number): void {
    if (target >= sentWorkMs.length) return;
    if (target >= this.#work.length) this.#grow(target + 1);
    const workMs = sentWorkMs[target]! - this.#reportedMs[target]!;
    if (workMs > 0) {
      const tookMs = nowMs - Math.max(sinceMs, this.#readMs[target]!);
      this.#reportedMs[target]! += workMs;
      this.sent(target, workMs * this.#countedShare(tookMs));
    }
    this.#readMs[target] = nowMs;
  }

  /** Decayed work sent to a target. `of` takes the sum over targets. */
  sentTo(target: number): number {
    return this.#work[target] ?? 0;
  }

  /**
   * @param sent the sum of `sentTo` over the engines
   * @param engines number of engines that share the work
   * @returns 0 to `maxBusyShare`
   */
  of(sent: number, engines: number): number {
    const workMs = sent / Math.exp(this.#windows());
    // What was seen of the first minute stands in for all of it.
    const seen = 1 - Math.exp((this.#startMs - this.#clock.nowMs() - leastSeenMs) / windowMs);
    const share = workMs / (windowMs * seen * Math.max(1, engines));
    return Math.min(maxBusyShare, caution * share);
  }

  /** The present weight of work that arrived evenly over this time until now, counted only since the start. */
  #countedShare(tookMs: number): number {
    if (tookMs <= 0) return 1;
    const countedMs = Math.min(tookMs, this.#clock.nowMs() - this.#startMs);
    return (-Math.expm1(-countedMs / windowMs) * windowMs) / tookMs;
  }

  /** Windows since the base. */
  #windows(): number {
    return (this.#clock.nowMs() - this.#baseMs) / windowMs;
  }

  /** Moves the base before the weight of present work grows too large to compute with. */
  #rebase(): void {
    const shrink = Math.exp(-this.#windows());
    for (let target = 0; target < this.#work.length; target++) this.#work[target]! *= shrink;
    this.#baseMs = this.#clock.nowMs();
  }

  #grow(least: number): void {
    const length = Math.max(least, 2 * this.#work.length);
    this.#work = widened(this.#work, length, 0);
    this.#reportedMs = widened(this.#reportedMs, length, 0);
    this.#readMs = widened(this.#readMs, length, Number.NEGATIVE_INFINITY);
  }
}

function widened(column: Float64Array, length: number, rest: number): Float64Array<ArrayBuffer> {
  const wide = new Float64Array(length).fill(rest);
  wide.set(column);
  return wide;
}

/** Above it a queue has no end, and affinity would outweigh everything else. */
export const maxBusyShare = 0.9;
const windowMs = 60_000;
const leastSeenMs = 1_000;
/** Engines also do other work than prefill. */
const caution = 1.15;
const firstTargets = 16;
/** Windows after which sums are taken anew, so that they stay exact. */
const maxWindows = 100;
