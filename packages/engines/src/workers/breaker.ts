import { backoffDelayMs, type Cancel, type Clock, type Random, type Scheduler } from "@espalier/core";
import type { BreakerOptions } from "./fleet-options.ts";

export type BreakerState = "closed" | "half-open" | "open";

/**
 * Permission to send one request. The first call settles it; later ones do nothing. Settle it as soon as the answer's first
 * byte or the failure is known: while half-open, the breaker lets no other request through until then, or for `openMs`.
 */
export interface Permit {
  success(): void;
  /** @param reason a short stable word for the log, such as an error code */
  failure(reason: string): void;
  /** The engine answered with a client error, which may be its own fault. */
  refused(): void;
  /** The request says nothing about the engine: the client left, or the engine said 429, which is load. */
  release(): void;
}

/** The circuit breaker of an engine: opens when too many requests to it fail. */
export interface Breaker {
  readonly state: BreakerState;
  /** Why it is in this state. */
  readonly reason: string;
  /** Whether `begin` would give a permit now. */
  readonly allows: boolean;
  /**
   * Whether its last answers, as many as the failures in a row that open it, were client errors. Ask another engine too before
   * the client is blamed for one more.
   */
  readonly isSuspect: boolean;
  begin(): Permit | undefined;
}

interface BreakerDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly options: BreakerOptions;
  /** Whether failures do not count now. */
  readonly isIgnoring?: () => boolean;
  /** Called after every change of state. */
  onChange(): void;
  /** The engine has answered a request. */
  onSuccess(): void;
}

/** A breaker and the operations of its owner. */
export interface OwnedBreaker extends Breaker {
  /** Opens it for a fault that no request shows. A half-open one opens only if its trial is unanswered: nothing else is new. */
  trip(reason: string): void;
  /** Makes a closed breaker half-open: one trial request at a time, until enough have succeeded. */
  halfOpen(reason: string): void;
  /** Undoes `halfOpen`, unless a trial has failed since. */
  trust(reason: string): void;
  stop(): void;
}

/** A closed breaker. The result of a request counts only if the state has not changed since the request began. */
export function createBreaker(deps: BreakerDeps): OwnedBreaker {
  return new EngineBreaker(deps);
}

class EngineBreaker implements OwnedBreaker {
  readonly #deps: BreakerDeps;
  readonly #window: ReturnType<typeof createResultWindow>;
  state: BreakerState = "closed";
  reason = "new";
  /** A new one after each change of state, so that a late result of an earlier period is recognized. */
  period = Symbol("period");
  #consecutiveFailures = 0;
  #trialSuccesses = 0;
  /** Client errors since the last success. */
  #refusals = 0;
  /** While half-open: the latest trial request in flight, and when it began. */
  #trial: Permit | undefined;
  #trialMs = Number.NEGATIVE_INFINITY;
  /** Openings since it was last closed; sets the length of the next one. */
  #openings = 0;
  #cancelTimer: Cancel = () => {};

  constructor(deps: BreakerDeps) {
    this.#deps = deps;
    this.#window = createResultWindow(deps.options.windowMs);
  }

  get allows(): boolean {
    return this.state === "closed" || (this.state === "half-open" && !this.#isTrialPending);
  }

  /** A trial may take minutes, or get no answer at all: another one follows when the breaker has waited as long as if it had failed. */
  get #isTrialPending(): boolean {
    const { clock, options } = this.#deps;
    return this.#trial !== undefined && clock.nowMs() - this.#trialMs < options.openMs;
  }

  get isSuspect(): boolean {
    return this.#refusals >= this.#deps.options.consecutiveFailures;
  }

  begin(): Permit | undefined {
    if (!this.allows) return undefined;
    const permit = new EnginePermit(this);
    if (this.state === "half-open") {
      this.#trial = permit;
      this.#trialMs = this.#deps.clock.nowMs();
    }
    return permit;
  }

  refused(): void {
    this.#refusals += 1;
    this.#answered();
  }

  succeeded(): void {
    this.#refusals = 0;
    this.#answered();
  }

  #answered(): void {
    this.#deps.onSuccess();
    if (this.state === "half-open") this.#trialSucceeded();
    else this.#count(false, "mixed results");
  }

  failed(reason: string): void {
    if (this.#deps.isIgnoring?.()) {
      this.released();
      return;
    }
    if (this.state === "half-open") this.#open(`trial failed: ${reason}`);
    else this.#count(true, reason);
  }

  released(): void {
    this.#trial = undefined;
  }

  trip(reason: string): void {
    if (this.state === "closed" || this.#trial !== undefined) this.#open(reason);
  }

  halfOpen(reason: string): void {
    if (this.state === "closed") this.#change("half-open", reason);
  }

  trust(reason: string): void {
    if (this.state === "half-open" && this.#openings === 0) this.#change("closed", reason);
  }

  stop(): void {
    this.#cancelTimer();
  }

  #trialSucceeded(): void {
    this.#trial = undefined;
    this.#trialSuccesses += 1;
    if (this.#trialSuccesses >= this.#deps.options.successesToClose) this.#close();
  }

  /** Counts a result of a closed breaker, and opens it on one failure too many. */
  #count(isFailure: boolean, reason: string): void {
    const { clock, options } = this.#deps;
    this.#consecutiveFailures = isFailure ? this.#consecutiveFailures + 1 : 0;
    this.#window.add(clock.nowMs(), isFailure);
    const { failures, results } = this.#window;
    const isShareReached = results >= options.windowRequests && failures >= options.failureShare * results;
    if (this.#consecutiveFailures >= options.consecutiveFailures) {
      this.#open(`${this.#consecutiveFailures} consecutive failures, last: ${reason}`);
    } else if (isShareReached) {
      this.#open(`${failures} of ${results} requests failed, last: ${reason}`);
    }
  }

  #open(reason: string): void {
    const { options, random, scheduler } = this.#deps;
    const limits = { firstDelayMs: options.openMs, maxDelayMs: options.maxOpenMs };
    const openMs = backoffDelayMs(this.#openings, limits, random);
    this.#openings += 1;
    this.#cancelTimer = scheduler.after(openMs, () => this.#change("half-open", "time for a trial"));
    this.#change("open", reason);
  }

  #close(): void {
    this.#openings = 0;
    this.#change("closed", "trials succeeded");
  }

  #change(state: BreakerState, reason: string): void {
    this.state = state;
    this.reason = reason;
    this.period = Symbol("period");
    this.#consecutiveFailures = 0;
    this.#trialSuccesses = 0;
    this.#trial = undefined;
    this.#window.clear();
    this.#deps.onChange();
  }
}

class EnginePermit implements Permit {
  readonly #breaker: EngineBreaker;
  readonly #period: symbol;
  #settled = false;

  constructor(breaker: EngineBreaker) {
    this.#breaker = breaker;
    this.#period = breaker.period;
  }

  success(): void {
    if (this.#settle()) this.#breaker.succeeded();
  }

  failure(reason: string): void {
    if (this.#settle()) this.#breaker.failed(reason);
  }

  refused(): void {
    if (this.#settle()) this.#breaker.refused();
  }

  release(): void {
    if (this.#settle()) this.#breaker.released();
  }

  /** Whether this is the first call and its period still lasts. */
  #settle(): boolean {
    const counts = !this.#settled && this.#period === this.#breaker.period;
    this.#settled = true;
    return counts;
  }
}

/** Results and failures within a sliding window, in constant memory. */
interface ResultWindow {
  readonly results: number;
  readonly failures: number;
  add(nowMs: number, failed: boolean): void;
  clear(): void;
}

/** The window slides by a tenth of its length. */
const bucketCount = 10;

/** @param windowMs how far back results count */
function createResultWindow(windowMs: number): ResultWindow {
  const bucketMs = windowMs / bucketCount;
  const resultsOf = new Uint32Array(bucketCount);
  const failuresOf = new Uint32Array(bucketCount);
  let newest = 0;
  let results = 0;
  let failures = 0;

  const slideTo = (bucket: number): void => {
    for (let passed = Math.max(newest, bucket - bucketCount) + 1; passed <= bucket; passed++) {
      const slot = passed % bucketCount;
      results -= resultsOf[slot]!;
      failures -= failuresOf[slot]!;
      resultsOf[slot] = 0;
      failuresOf[slot] = 0;
    }
    newest = Math.max(newest, bucket);
  };

  return {
    get results() {
      return results;
    },
    get failures() {
      return failures;
    },
    add(nowMs, failed) {
      slideTo(Math.floor(nowMs / bucketMs));
      const slot = newest % bucketCount;
      resultsOf[slot]! += 1;
      results += 1;
      if (!failed) return;
      failuresOf[slot]! += 1;
      failures += 1;
    },
    clear() {
      resultsOf.fill(0);
      failuresOf.fill(0);
      results = 0;
      failures = 0;
    },
  };
}
