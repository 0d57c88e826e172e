import { systemScheduler } from "@espalier/core";

/** The deadlines themselves are checked in virtual time; here a machine that is shared only must not fail. */
export const realTimeFactor = 4;

/** Lets real time pass: what is under way elsewhere goes on meanwhile. */
export function passRealTime(durationMs: number): Promise<void> {
  return new Promise((resolve) => {
    systemScheduler.after(durationMs, resolve);
  });
}
