import { backoffDelayMs, type Cancel, type Clock, type Random, type Scheduler } from "@espalier/common";
import type { BreakerOptions } from "./fleet-options.ts";
import { createResultWindow } from "./result-window.ts";

export type BreakerState = "closed" | "half-open" | "open";

/**
 * Leave to send one request. The first call settles it, later ones do nothing. Settle it as soon as the answer's first
 * byte or the failure is known: while half-open, no other request may go until then.
 */
export interface Permit {
  success(): void;
  /** @param reason a short stable word for the log, such as an error code */
  failure(reason: string): void;
  /** The request says nothing about the engine: the client left, or the engine said 429, which is load. */
  release(): void;
}

/** Judges an engine by the requests sent to it. */
export interface Breaker {
  readonly state: BreakerState;
  /** Why it is in this state. */
  readonly reason: string;
  /** Whether `begin` would give a permit now. */
  readonly allows: boolean;
  begin(): Permit | undefined;
}

export interface BreakerDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly options: BreakerOptions;
  /** Told after every change of state. */
  onChange(): void;
}

/** A breaker with the means to end its timer. */
export interface OwnedBreaker extends Breaker {
  /** Puts an engine that is not left alone on trial: one request at a time, until enough have gone well. */
  doubt(reason: string): void;
  stop(): void;
}

/** A closed breaker. Results count only in the period between two changes of state in which their request began. */
export function createBreaker(deps: BreakerDeps): OwnedBreaker {
  return new EngineBreaker(deps);
}

class EngineBreaker implements OwnedBreaker {
  readonly #deps: BreakerDeps;
  readonly #window: ReturnType<typeof createResultWindow>;
  state: BreakerState = "closed";
  reason = "new";
  /** Counts changes of state, so that a late result of an earlier period is recognised. */
  period = 0;
  #consecutiveFailures = 0;
  #trialSuccesses = 0;
  #trialInFlight = false;
  /** Openings since it was last closed; sets how long the next one lasts. */
  #openings = 0;
  #cancelTimer: Cancel = () => {};

  constructor(deps: BreakerDeps) {
    this.#deps = deps;
    this.#window = createResultWindow(deps.options.windowMs);
  }

  get allows(): boolean {
    return this.state === "closed" || (this.state === "half-open" && !this.#trialInFlight);
  }

  begin(): Permit | undefined {
    if (!this.allows) return undefined;
    if (this.state === "half-open") this.#trialInFlight = true;
    return new EnginePermit(this);
  }

  succeeded(): void {
    if (this.state === "half-open") {
      this.#trialInFlight = false;
      this.#trialSuccesses += 1;
      if (this.#trialSuccesses >= this.#deps.options.successesToClose) this.#close();
      return;
    }
    this.#consecutiveFailures = 0;
    this.#window.add(this.#deps.clock.nowMs(), false);
    this.#openOnShare("mixed results");
  }

  failed(reason: string): void {
    if (this.state === "half-open") {
      this.#open(`trial failed: ${reason}`);
      return;
    }
    this.#consecutiveFailures += 1;
    this.#window.add(this.#deps.clock.nowMs(), true);
    if (this.#consecutiveFailures >= this.#deps.options.consecutiveFailures) {
      this.#open(`${this.#consecutiveFailures} consecutive failures, last: ${reason}`);
    } else {
      this.#openOnShare(reason);
    }
  }

  released(): void {
    this.#trialInFlight = false;
  }

  doubt(reason: string): void {
    if (this.state === "closed") this.#change("half-open", reason);
  }

  stop(): void {
    this.#cancelTimer();
  }

  #openOnShare(last: string): void {
    const { failures, results } = this.#window;
    const { failureShare, windowRequests } = this.#deps.options;
    if (results < windowRequests || failures < failureShare * results) return;
    this.#open(`${failures} of ${results} requests failed, last: ${last}`);
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
    this.period += 1;
    this.#consecutiveFailures = 0;
    this.#trialSuccesses = 0;
    this.#trialInFlight = false;
    this.#window.clear();
    this.#deps.onChange();
  }
}

class EnginePermit implements Permit {
  readonly #breaker: EngineBreaker;
  readonly #period: number;
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
