import { type Clock, type CounterSeries, counterOf, EspalierError, type Meter } from "@espalier/core";

/**
 * Why an attempt at an engine did not give a whole answer.
 *
 * - `connect`: no connection could be opened. Nothing was sent.
 * - `overloaded`: every connection to the engine is in use and its queue is full. Nothing was sent.
 * - `reset`: the connection ended early. The engine may have received the request.
 * - `timeout`: the engine was silent for too long.
 * - `status`: the engine answered with a status after which another engine may do better.
 * - `protocol`: the answer is not valid HTTP.
 * - `broken`: the answer has status 200, and is an error, empty or without its end.
 * - `declined`: the answer began but was not wanted.
 * - `withdrawn`: the attempt was given up.
 * - `unknown_model`: the engine does not serve the model. Nothing was computed.
 */
export type FailureKind =
  | "connect"
  | "overloaded"
  | "reset"
  | "timeout"
  | "status"
  | "protocol"
  | "broken"
  | "declined"
  | "withdrawn"
  | "unknown_model";

/** A request that breaks this many engines counts as the cause. */
const maxBroken = 2;

export interface RetryMeters {
  readonly free: CounterSeries;
  readonly charged: CounterSeries;
  readonly exhausted: (amount?: number) => void;
}

export function createRetryMeters(meter: Meter): RetryMeters {
  const retries = meter.counter(
    "espalier_proxy_retries_total",
    "Requests retried on another engine, by whether the retry budget was charged.",
    ["budget"],
  );
  return {
    free: retries.series("free"),
    charged: retries.series("charged"),
    exhausted: counterOf(meter, "espalier_proxy_retry_budget_exhausted_total", "Retries rejected by the retry budget."),
  };
}

/**
 * Decides what may be resent for one client's request. The request may be what broke the engine, so each resend repeats
 * that risk. All attempts for the request share this state.
 *
 * A failure before the engine got the request, or because it does not serve the model, is free: the next engine is tried
 * at once. After that, one more attempt
 * is made if the retry budget allows it, and none once an engine has begun to answer.
 */
export class Retries {
  readonly #budget: RetryBudget;
  readonly #meters: RetryMeters;
  #broken = 0;
  #isRedialled = false;
  #isCharged = false;

  constructor(budget: RetryBudget, meters: RetryMeters) {
    this.#budget = budget;
    this.#meters = meters;
  }

  /** The request begins. It earns a share of a retry. */
  begin(): void {
    this.#budget.earn();
  }

  /** A connection broke with the request on it. */
  broke(): void {
    this.#broken += 1;
  }

  /** Whether the request must not go to any engine any more. */
  get isDangerous(): boolean {
    return this.#broken >= maxBroken;
  }

  /** Whether an engine may have read it, so that a stale connection should not cost another copy. */
  get isResent(): boolean {
    return this.#isRedialled || this.#broken > 0;
  }

  /**
   * Takes the one free resend: on a new connection, in place of a kept-alive one that was stale. @returns whether it
   * was still available
   */
  redial(): boolean {
    if (this.#isRedialled) return false;
    this.#isRedialled = true;
    return true;
  }

  /**
   * Decides what follows a failure.
   *
   * @param hasHeaders whether the head of an answer came: the engine may have computed the prompt
   * @param choose returns the next attempt; undefined if there is none
   * @returns undefined if the request has failed
   */
  after<Choice>(kind: FailureKind, hasHeaders: boolean, choose: () => Choice | undefined): Choice | undefined {
    if (freeKinds.has(kind)) {
      const next = choose();
      if (next !== undefined) this.#meters.free.add();
      return next;
    }
    if (hasHeaders || kind === "timeout" || (kind === "reset" && this.isDangerous)) return undefined;
    return this.mayCharge() ? this.charged(choose) : undefined;
  }

  /** Whether the request still has its one charged retry, and the budget allows it. */
  mayCharge(): boolean {
    if (this.#isCharged) return false;
    if (this.#budget.allows()) return true;
    this.#meters.exhausted();
    return false;
  }

  /** Spends the charged retry if there is an attempt to spend it on. */
  charged<Choice>(choose: () => Choice | undefined): Choice | undefined {
    const next = choose();
    if (next === undefined) return undefined;
    this.#isCharged = true;
    this.#budget.spend();
    this.#meters.charged.add();
    return next;
  }

  /** The error that the client gets for a failure. */
  verdict(cause: EspalierError): EspalierError {
    return this.isDangerous ? new EspalierError("request_breaks_engines", undefined, { cause }) : cause;
  }
}

const freeKinds: ReadonlySet<FailureKind> = new Set([
  "connect",
  "overloaded",
  "declined",
  "withdrawn",
  "unknown_model",
]);

export interface RetryBudgetOptions {
  /** Charged retries allowed per request, over a sliding window of 10 s. */
  readonly budgetRatio: number;
  /** Charged retries always allowed in the window. */
  readonly budgetMinimum: number;
}

const bucketMs = 1_000;
const bucketCount = 10;

const defaultRetryBudget: RetryBudgetOptions = { budgetRatio: 0.2, budgetMinimum: 50 };

/** Limits charged retries to a share of the requests of the last 10 s, so that retries never become a storm. */
export interface RetryBudget {
  /** Counts a request, which earns a share of a retry. */
  earn(): void;
  /** Whether the budget allows one more retry. */
  allows(): boolean;
  /** Counts a retry. */
  spend(): void;
}

/** For requests of which no failed attempt is made again at a charge. */
export const noRetryBudget: RetryBudget = { earn() {}, allows: () => false, spend() {} };

/** A retry budget whose window slides in steps of one second. */
export function createRetryBudget(clock: Clock, options: RetryBudgetOptions = defaultRetryBudget): RetryBudget {
  const requests = new Float64Array(bucketCount);
  const retries = new Float64Array(bucketCount);
  let current: number | undefined;
  let requestSum = 0;
  let retrySum = 0;

  const bucket = (): number => {
    const now = Math.floor(clock.nowMs() / bucketMs);
    for (let step = Math.min(now - (current ?? now), bucketCount); step > 0; step--) {
      const expired = (now - step + 1) % bucketCount;
      requestSum -= requests[expired]!;
      retrySum -= retries[expired]!;
      requests[expired] = 0;
      retries[expired] = 0;
    }
    current = now;
    return now % bucketCount;
  };

  return {
    earn() {
      requests[bucket()]! += 1;
      requestSum += 1;
    },
    allows() {
      bucket();
      return retrySum + 1 <= Math.max(options.budgetMinimum, options.budgetRatio * requestSum);
    },
    spend() {
      retries[bucket()]! += 1;
      retrySum += 1;
    },
  };
}
