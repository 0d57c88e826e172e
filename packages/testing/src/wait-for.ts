import { systemClock } from "@espalier/common";

export interface WaitOptions {
  /** What is awaited, for the message of the failure. */
  readonly what: string;
  readonly deadlineMs?: number;
}

/**
 * Waits until `probe` gives something other than `undefined` or `false`, looking every few milliseconds.
 *
 * @throws Error naming `what` when the deadline passes
 */
export async function waitFor<T>(
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  { what, deadlineMs = 15_000 }: WaitOptions,
): Promise<T> {
  const startMs = systemClock.nowMs();
  for (;;) {
    const found = await probe();
    if (found !== undefined && found !== false) return found;
    if (systemClock.nowMs() - startMs > deadlineMs) throw new Error(`no ${what} within ${deadlineMs} ms`);
    await new Promise<void>((resolve) => setTimeout(resolve, 5));
  }
}
