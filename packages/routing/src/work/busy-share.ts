import type { Clock } from "@espalier/common";
import type { SharedLoad } from "@espalier/replication";

/**
 * Which share of the time engines compute prompts, by what all routers sent to them over the last minute: the rho of queueing
 * theory. It is that of the engines among which a request chooses: what others are sent, such as jobs in lanes of their own,
 * makes nobody wait here.
 */
export class BusyShare {
  readonly #clock: Clock;
  readonly #startMs: number;
  /** Of each target, in milliseconds of work; later work counts more, by `e` for each window since the base. */
  #work = new Float64Array(firstTargets);
  /** What the others had sent to each target when that was last looked at, and when that was; -Infinity before. */
  #heardMs = new Float64Array(firstTargets);
  #lookedMs = new Float64Array(firstTargets).fill(Number.NEGATIVE_INFINITY);
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

  /** Takes in what other routers have sent to a target since the last call, now. It is taken to have come evenly. */
  heard(target: number, { sentWorkMs, sinceMs }: Pick<SharedLoad, "sentWorkMs" | "sinceMs">, nowMs: number): void {
    if (target >= sentWorkMs.length) return;
    if (target >= this.#work.length) this.#grow(target + 1);
    const workMs = sentWorkMs[target]! - this.#heardMs[target]!;
    if (workMs > 0) {
      const tookMs = nowMs - Math.max(sinceMs, this.#lookedMs[target]!);
      this.#heardMs[target]! += workMs;
      this.sent(target, workMs * this.#countedShare(tookMs));
    }
    this.#lookedMs[target] = nowMs;
  }

  /** What was sent to a target, the more the later. Sums of it over targets are what `of` takes. */
  sentTo(target: number): number {
    return this.#work[target] ?? 0;
  }

  /**
   * @param sent the sum of `sentTo` over the engines
   * @param engines that share the work
   * @returns 0 to `maxBusyShare`
   */
  of(sent: number, engines: number): number {
    const workMs = sent / Math.exp(this.#windows());
    // What was seen of the first minute stands for the whole of it.
    const seen = 1 - Math.exp((this.#startMs - this.#clock.nowMs() - leastSeenMs) / windowMs);
    const share = workMs / (windowMs * seen * Math.max(1, engines));
    return Math.min(maxBusyShare, caution * share);
  }

  /** What counts now of work that came evenly for so long until now, and only since the beginning. */
  #countedShare(tookMs: number): number {
    if (tookMs <= 0) return 1;
    const countedMs = Math.min(tookMs, this.#clock.nowMs() - this.#startMs);
    return (-Math.expm1(-countedMs / windowMs) * windowMs) / tookMs;
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
    const length = Math.max(least, 2 * this.#work.length);
    this.#work = widened(this.#work, length, 0);
    this.#heardMs = widened(this.#heardMs, length, 0);
    this.#lookedMs = widened(this.#lookedMs, length, Number.NEGATIVE_INFINITY);
  }
}

function widened(column: Float64Array, length: number, rest: number): Float64Array<ArrayBuffer> {
  const wide = new Float64Array(length).fill(rest);
  wide.set(column);
  return wide;
}

/** Past it a queue has no end, and affinity would be all that counts. */
export const maxBusyShare = 0.9;
const windowMs = 60_000;
const leastSeenMs = 1_000;
/** Engines do other things than prefill. */
const caution = 1.15;
const firstTargets = 16;
const maxWindows = 100;
