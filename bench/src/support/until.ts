import type { Clock, Scheduler } from "@espalier/core";

export interface WaitPorts {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

const askEveryMs = 20;

/**
 * Polls until nothing is missing.
 *
 * @param missing returns what is missing, or undefined
 * @throws Error with the last answer when something is still missing after `timeoutMs`
 */
export async function untilNothingMissing(
  missing: () => Promise<string | undefined>,
  timeoutMs: number,
  { clock, scheduler }: WaitPorts,
): Promise<void> {
  const deadlineMs = clock.nowMs() + timeoutMs;
  for (;;) {
    const what = await missing();
    if (what === undefined) return;
    if (clock.nowMs() >= deadlineMs) throw new Error(`after ${timeoutMs} ms ${what}`);
    await pauseFor(askEveryMs, scheduler);
  }
}

export function pauseFor(delayMs: number, scheduler: Scheduler): Promise<void> {
  return new Promise((resolve) => scheduler.after(delayMs, resolve));
}
