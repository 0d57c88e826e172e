import type { Clock } from "@espalier/common";

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
