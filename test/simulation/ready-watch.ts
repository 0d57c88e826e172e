import type { SimFleet } from "@espalier/simulator";

/**
 * How long a router may take until it routes, whatever it cannot reach: the 3 s in which it looks for others, and as much
 * again for what it has begun to fetch.
 */
const readyMs = 6_000;

/** Watches that no router waits for others for ever before it routes. */
export class ReadyWatch {
  /** When each seat's process began to run, or was last stopped. */
  readonly #sinceMs = new Map<number, number>();
  readonly #epochs = new Map<number, number>();

  /** Since when a router's process has run without a stop, as far as is known. */
  runsSinceMs(router: number): number {
    return this.#sinceMs.get(router) ?? Number.POSITIVE_INFINITY;
  }

  /** To be called at every step. @returns routers that wait too long, in words */
  problems({ routerNodes, time }: SimFleet): string[] {
    const nowMs = time.clock.nowMs();
    const found: string[] = [];
    for (const { number, epochs, router, time: own } of routerNodes) {
      if (!router || own.isPaused || this.#epochs.get(number) !== epochs) {
        this.#sinceMs.set(number, nowMs);
        this.#epochs.set(number, epochs);
        continue;
      }
      const { waitingFor } = router.view;
      const waitedMs = nowMs - this.#sinceMs.get(number)!;
      if (waitingFor.length > 0 && waitedMs > readyMs) {
        found.push(`router ${number} has waited ${Math.round(waitedMs)} ms for ${waitingFor.join(", ")}`);
      }
    }
    return found;
  }
}
