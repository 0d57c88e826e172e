/**
 * In which order an engine that goes by numbers takes the requests of one class that wait in it: as they came to routers,
 * or those first that it computes least on, with an age that lets none wait for ever.
 */
export const engineOrders = ["arrival", "shortest"] as const;
export type EngineOrder = (typeof engineOrders)[number];

export interface EnginePlace {
  /** Classes between the request's own and the default one; below 0 for a higher class. */
  readonly classesBelow: number;
  /** When it came to its router, by the wall clock, which all routers share but for milliseconds. */
  readonly arrivedWallMs: number;
  /** What an engine is expected to compute on its prompt, in milliseconds; 0 when nothing is known. */
  readonly workMs: number;
}

/**
 * How much later than it came a request counts as come for a millisecond of its own prompt's work: one of a second lets those
 * pass that come in the next 20 s and need next to nothing.
 */
const agePerWorkMs = 20;
/** Between two classes lies more time than the wall clock will show before the year 2109. */
export const classSpanMs = 2 ** 42;

/**
 * Where a request stands in the queue of an engine that takes the lowest number first. It never changes, and all routers
 * count alike, so that the engine's queue is one that all of them share, and none is overtaken for ever.
 *
 * @returns a whole number that a double holds exactly
 */
export function enginePlace({ classesBelow, arrivedWallMs, workMs }: EnginePlace): number {
  const countsAsMs = Math.floor(arrivedWallMs + agePerWorkMs * Math.max(0, workMs));
  return classesBelow * classSpanMs + Math.max(0, Math.min(countsAsMs, classSpanMs - 1));
}
