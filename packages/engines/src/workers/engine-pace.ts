import type { Clock, EngineId } from "@espalier/core";
import type { EngineRecord } from "./engine-record.ts";

/** How old a measurement of an engine may be. */
const windowMs = 60_000;

/** Most measurements of one kind that are kept of an engine: the latest. */
export const keptTimes = 64;

/** How fast an engine has answered this router's streams in the last minute. Times are medians; NaN without any. */
export interface EnginePace {
  /** First tokens measured; 64 at most. */
  readonly firstTokens: number;
  /** Milliseconds from dispatch to first token. */
  readonly ttftMs: number;
  /** The same beyond what the prompts ahead may take on a slow engine. */
  readonly lateMs: number;
  /** Streams measured from their first token to their end; 64 at most. */
  readonly streams: number;
  /** Milliseconds per token after the first. */
  readonly tpotMs: number;
}

/**
 * Milliseconds that a prompt token may take: 1,000 tokens a second, less than any engine computes that serves people. What
 * is judged by it needs no learned times, and excuses long prompts.
 */
export const tokenGraceMs = 1;

/** Measures an engine's answers. Takes memory once there are any. */
export class PaceRecord implements EnginePace {
  readonly #ttft: RecentTimes;
  readonly #late: RecentTimes;
  readonly #tpot: RecentTimes;

  constructor(clock: Clock) {
    this.#ttft = new RecentTimes(clock);
    this.#late = new RecentTimes(clock);
    this.#tpot = new RecentTimes(clock);
  }

  /** @param tokensAhead prompt tokens to be computed until then, its own included, as known at dispatch */
  firstToken(afterMs: number, tokensAhead: number): void {
    this.#ttft.add(afterMs);
    this.#late.add(Math.max(0, afterMs - tokensAhead * tokenGraceMs));
  }

  streamed(msPerToken: number): void {
    this.#tpot.add(msPerToken);
  }

  get firstTokens(): number {
    return this.#ttft.count();
  }

  get ttftMs(): number {
    return this.#ttft.medianMs();
  }

  get lateMs(): number {
    return this.#late.medianMs();
  }

  get streams(): number {
    return this.#tpot.count();
  }

  get tpotMs(): number {
    return this.#tpot.medianMs();
  }
}

/** The latest times of the last minute, in a ring. */
class RecentTimes {
  readonly #clock: Clock;
  #values: Float64Array | undefined;
  #atMs: Float64Array | undefined;
  #added = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(valueMs: number): void {
    this.#values ??= new Float64Array(keptTimes);
    this.#atMs ??= new Float64Array(keptTimes).fill(Number.NEGATIVE_INFINITY);
    const at = this.#added++ % keptTimes;
    this.#values[at] = valueMs;
    this.#atMs[at] = this.#clock.nowMs();
  }

  count(): number {
    const sinceMs = this.#clock.nowMs() - windowMs;
    return this.#atMs?.reduce((count, atMs) => (atMs > sinceMs ? count + 1 : count), 0) ?? 0;
  }

  medianMs(): number {
    if (!this.#atMs || !this.#values) return Number.NaN;
    const sinceMs = this.#clock.nowMs() - windowMs;
    const atMs = this.#atMs;
    return medianOf(this.#values.filter((_, at) => atMs[at]! > sinceMs));
  }
}

/** Fewer measurements of an engine in the last minute say nothing. */
const minMeasured = 5;
/** An engine is slow whose times are so many times those of the others. */
const slowFactor = 3;
/** Nobody minds a first token that is late by less than this, or tokens in quicker succession. */
const minLateMs = 1_000;
const minTpotMs = 100;

/** In what an engine is slow, beside the median of the other engines of a model. */
export interface SlowEngine {
  readonly measure: "ttft" | "tpot";
  readonly ms: number;
  readonly othersMs: number;
}

/**
 * Engines that have answered much later than the others of one of their models in the last minute: a first token at least
 * three times as late as that of the others and a second later than its prompts excuse, or three times the time per token
 * and at least 100 ms. Engines with fewer than five measurements are neither slow nor a measure.
 */
export function findSlowEngines(engines: readonly EngineRecord[]): ReadonlyMap<EngineId, SlowEngine> {
  const paces = engines.flatMap(({ id, models, pace }) => {
    const { firstTokens, streams } = pace;
    if (Math.max(firstTokens, streams) < minMeasured) return [];
    const ttftMs = firstTokens < minMeasured ? Number.NaN : pace.ttftMs;
    const tpotMs = streams < minMeasured ? Number.NaN : pace.tpotMs;
    return [{ id, models: (models ?? []).map((model) => model.id), ttftMs, tpotMs, lateMs: pace.lateMs }];
  });
  const found = new Map<EngineId, SlowEngine>();
  for (const one of paces) {
    const isLate = one.ttftMs > 0 && one.lateMs >= minLateMs;
    if (!isLate && !(one.tpotMs >= minTpotMs)) continue;
    const others = paces.filter(
      ({ id, models }) => id !== one.id && models.some((model) => one.models.includes(model)),
    );
    const lateOthersMs = medianOf(others.map(({ lateMs, ttftMs }) => (ttftMs > 0 ? lateMs : Number.NaN)));
    const ttftOthersMs = medianOf(others.map(({ ttftMs }) => ttftMs));
    const tpotOthersMs = medianOf(others.map(({ tpotMs }) => tpotMs));
    if (isLate && one.ttftMs >= slowFactor * ttftOthersMs && one.lateMs >= slowFactor * lateOthersMs) {
      found.set(one.id, { measure: "ttft", ms: one.ttftMs, othersMs: ttftOthersMs });
    } else if (one.tpotMs >= minTpotMs && one.tpotMs >= slowFactor * tpotOthersMs) {
      found.set(one.id, { measure: "tpot", ms: one.tpotMs, othersMs: tpotOthersMs });
    }
  }
  return found;
}

/** Of the known ones; NaN without any. */
function medianOf(values: ArrayLike<number>): number {
  const known = Float64Array.from(values)
    .filter((value) => !Number.isNaN(value))
    .sort();
  return known[(known.length - 1) >> 1] ?? Number.NaN;
}
