import { systemScheduler } from "@espalier/common";

/** Lets real time pass: what is under way elsewhere goes on meanwhile. */
export function passRealTime(durationMs: number): Promise<void> {
  return new Promise((resolve) => {
    systemScheduler.after(durationMs, resolve);
  });
}
