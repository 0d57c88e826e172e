import type { Random } from "./random.ts";

export interface BackoffOptions {
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
}

/**
 * Delay before retry number `attempt` (0 for the first): exponential with full jitter between half and all of the
 * doubled delay (Brooker, "Exponential Backoff and Jitter", 2015).
 *
 * @returns milliseconds, at most `maxDelayMs`
 */
export function backoffDelayMs(attempt: number, options: BackoffOptions, random: Random): number {
  const ceilingMs = Math.min(options.maxDelayMs, options.firstDelayMs * 2 ** Math.min(attempt, 30));
  return ceilingMs * (0.5 + 0.5 * random.float());
}
