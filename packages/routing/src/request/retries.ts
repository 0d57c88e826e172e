import { type Clock, type CounterSeries, counterOf, EspalierError, type Meter } from "@espalier/common";

/**
 * Why an attempt at an engine did not give a whole answer.
 *
 * - `connect`: no connection could be opened. Nothing was sent.
 * - `overloaded`: every connection to the engine is in use and its queue is full. Nothing was sent.
 * - `reset`: the connection ended early. The engine may have had the request.
 * - `timeout`: the engine was silent for too long.
 * - `status`: the engine answered with a status that is worth another engine.
 * - `protocol`: the answer is not valid HTTP.
 * - `declined`: the answer that began was not wanted. - `withdrawn`: the attempt was given up.
 */
export type FailureKind =
  | "connect"
  | "overloaded"
  | "reset"
  | "timeout"
  | "status"
  | "protocol"
  | "declined"
  | "withdrawn";

/** Engines that a request may break before it counts as what breaks them. */
const maxBroken = 2;

export interface RetryMeters {
  readonly free: CounterSeries;
  readonly charged: CounterSeries;
  readonly exhausted: (amount?: number) => void;
}

export function createRetryMeters(meter: Meter): RetryMeters {
  const retries = meter.counter({
    name: "espalier_proxy_retries_total",
    help: "Requests sent to another engine, by whether the retry budget was charged.",
    labels: ["budget"],
  });
  return {
    free: retries.series("free"),
    charged: retries.series("charged"),
    exhausted: counterOf(meter, "espalier_proxy_retry_budget_exhausted_total", "Retries that the budget refused."),
  };
}

/**
 * What may be sent again of one client's request, and where it can be the request that broke the engine: then what is sent
 * again is a copy of that risk. Everything that is sent for the request shares these.
 *
 * A failure before the engine had the request is free: the next engine is tried at once. After that one more attempt is
 * made, if the budget has room for it; none once an engine has begun to answer.
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

  /** The request begins: it earns a share of a retry. */
  begin(): void {
    this.#budget.earn();
  }

  /** A connection ended with the request on it. */
  broke(): void {
    this.#broken += 1;
  }

  /** Whether it is to go to no engine any more. */
  get isDangerous(): boolean {
    return this.#broken >= maxBroken;
  }

  /** Whether it may have been read by an engine, so that a further copy should not be lost to a stale connection. */
  get isResent(): boolean {
    return this.#isRedialled || this.#broken > 0;
  }

  /** Takes the one resend at no charge: on a new connection, in place of a kept one that had gone stale. @returns whether it was left */
  redial(): boolean {
    if (this.#isRedialled) return false;
    this.#isRedialled = true;
    return true;
  }

  /**
   * What follows a failure.
   *
   * @param hasHeaders whether the engine had begun to answer
   * @param choose the next attempt; undefined when there is none
   * @returns undefined when the request has failed
   */
  after<Choice>(kind: FailureKind, hasHeaders: boolean, choose: () => Choice | undefined): Choice | undefined {
    if (isFree(kind)) {
      const next = choose();
      if (next !== undefined) this.#meters.free.add();
      return next;
    }
    if (kind === "timeout" || (kind === "reset" && (hasHeaders || this.isDangerous))) return undefined;
    return this.mayCharge() ? this.charged(choose) : undefined;
  }

  /** Whether the request's one charged retry is left, and the budget has room for it. */
  mayCharge(): boolean {
    if (this.#isCharged) return false;
    if (this.#budget.allows()) return true;
    this.#meters.exhausted();
    return false;
  }

  /** Spends the charged retry, if there is an attempt to spend it on. */
  charged<Choice>(choose: () => Choice | undefined): Choice | undefined {
    const next = choose();
    if (next === undefined) return undefined;
    this.#isCharged = true;
    this.#budget.spend();
    this.#meters.charged.add();
    return next;
  }

  /** What the client is told of a failure. */
  verdict(cause: EspalierError): EspalierError {
    return this.isDangerous ? new EspalierError("request_breaks_engines", undefined, { cause }) : cause;
  }
}

function isFree(kind: FailureKind): boolean {
  return kind === "connect" || kind === "overloaded" || kind === "declined" || kind === "withdrawn";
}

export interface RetryBudgetOptions {
  /** Charged retries allowed per request, over a sliding window of 10 s. */
  readonly budgetRatio: number;
  /** Charged retries always allowed in the window. */
  readonly budgetMinimum: number;
}

const bucketMs = 1_000;
const bucketCount = 10;

const defaultRetryBudget: RetryBudgetOptions = { budgetRatio: 0.2, budgetMinimum: 50 };

/** Keeps charged retries to a share of the requests of the last 10 s, so that retries never add up to a storm. */
export interface RetryBudget {
  /** Counts a request, which earns a share of a retry. */
  earn(): void;
  /** Whether one more retry fits. */
  allows(): boolean;
  /** Counts a retry. */
  spend(): void;
}

/** A budget whose window slides in steps of one second. */
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
