import type { Sharing, SimTiming } from "../run/run-options.ts";

/** When what happens at a moment is known elsewhere. Virtual milliseconds; later moments never arrive earlier. */
export interface DeliveryTimes {
  /** Facts that an engine publishes, at every router; undefined where engines tell nothing. */
  readonly factsDueMs: ((publishedMs: number) => number) | undefined;
  /** Guesses of a router, at the others. */
  readonly placementsDueMs: (placedMs: number) => number;
  /** Load that a router tells, at the others. */
  readonly loadDueMs: (toldMs: number) => number;
}

const secondMs = 1_000;

/** The first whole second after a moment. */
export const nextSecondMs = (atMs: number): number => (Math.floor(atMs / secondMs) + 1) * secondMs;

/** What `sharing` means for a fleet of so many routers: one alone has nothing to wait for but the engines' events. */
export function deliveryTimes(sharing: Sharing, routers: number, timing: SimTiming): DeliveryTimes {
  const { eventDelayMs, linkDelayMs, sharedFactsMs, sharedLoadMs } = timing;
  const atOnce = (atMs: number): number => atMs;
  const read = (publishedMs: number): number => publishedMs + eventDelayMs;
  if (sharing === "none") return { factsDueMs: undefined, placementsDueMs: atOnce, loadDueMs: atOnce };
  if (routers > 1 && sharing === "mesh") {
    return {
      factsDueMs: (publishedMs) => publishedMs + eventDelayMs + sharedFactsMs,
      placementsDueMs: (placedMs) => placedMs + sharedFactsMs,
      loadDueMs: (toldMs) => toldMs + sharedLoadMs,
    };
  }
  if (routers > 1 && sharing === "gossip-1s") {
    return {
      factsDueMs: (publishedMs) => nextSecondMs(publishedMs + eventDelayMs) + linkDelayMs,
      placementsDueMs: (placedMs) => nextSecondMs(placedMs) + linkDelayMs,
      // It is told at whole seconds already.
      loadDueMs: (toldMs) => toldMs + linkDelayMs,
    };
  }
  return { factsDueMs: read, placementsDueMs: atOnce, loadDueMs: atOnce };
}
