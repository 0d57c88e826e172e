/**
 * Order of the requests of one class within an engine's own priority queue: by arrival at a router, or shortest work
 * first with aging, so that none waits forever.
 */
export const engineOrders = ["arrival", "shortest"] as const;
export type EngineOrder = (typeof engineOrders)[number];

export interface EnginePlace {
  /** Classes between the request's class and the default one; negative for a higher class. */
  readonly classesBelow: number;
  /** Arrival at its router by the wall clock, which routers share to within milliseconds. */
  readonly arrivedWallMs: number;
  /** Expected milliseconds of work on its prompt; 0 when unknown. */
  readonly workMs: number;
}

/**
 * Milliseconds by which each millisecond of work delays a request's nominal arrival: one with a second of work is passed by
 * short ones that arrive within the next 20 s.
 */
const agePerWorkMs = 20;
/** The classes are further apart than the wall clock can reach before the year 2109. */
export const classSpanMs = 2 ** 42;

/**
 * Priority number of a request for an engine that takes the lowest number first. It never changes and all routers
 * compute the same one. So the engine's queue is one fair queue for all routers, and no request is overtaken forever.
 *
 * @returns a whole number that a double represents exactly
 */
export function enginePlace({ classesBelow, arrivedWallMs, workMs }: EnginePlace): number {
  const countsAsMs = Math.floor(arrivedWallMs + agePerWorkMs * Math.max(0, workMs));
  return classesBelow * classSpanMs + Math.max(0, Math.min(countsAsMs, classSpanMs - 1));
}
