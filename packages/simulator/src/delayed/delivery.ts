import type { TimerHeap } from "@espalier/testing";
import type { Sharing, SimTiming } from "../run.ts";
import { type Placement, timingBetween } from "../topology.ts";

/** Arrival time by send time, in virtual milliseconds. Messages never overtake each other. */
export interface DeliveryTimes {
  /** KV events of an engine, at every router; undefined where engines publish none. */
  readonly factsDueMs: ((publishedMs: number) => number) | undefined;
  /** Placements of a router, at the others. */
  readonly placementsDueMs: (placedMs: number) => number;
  /** Load of a router, at the others. */
  readonly loadDueMs: (sentMs: number) => number;
}

const secondMs = 1_000;

/** The first whole second after a moment. */
export const nextSecondMs = (atMs: number): number => (Math.floor(atMs / secondMs) + 1) * secondMs;

const atOnce = (atMs: number): number => atMs;

/** Nothing has to go to another router, or it is there at once. */
const asOne = ({ eventDelayMs }: SimTiming): DeliveryTimes => ({
  factsDueMs: (publishedMs) => publishedMs + eventDelayMs,
  placementsDueMs: atOnce,
  loadDueMs: atOnce,
});

/** How several routers hear of things. */
const delaysBySharing: Readonly<Record<Sharing, (timing: SimTiming) => DeliveryTimes>> = {
  none: () => ({ factsDueMs: undefined, placementsDueMs: atOnce, loadDueMs: atOnce }),
  "events-only": asOne,
  oracle: asOne,
  mesh: ({ eventDelayMs, sharedFactsMs, sharedLoadMs }) => ({
    factsDueMs: (publishedMs) => publishedMs + eventDelayMs + sharedFactsMs,
    placementsDueMs: (placedMs) => placedMs + sharedFactsMs,
    loadDueMs: (sentMs) => sentMs + sharedLoadMs,
  }),
  "gossip-1s": ({ eventDelayMs, linkDelayMs }) => ({
    factsDueMs: (publishedMs) => nextSecondMs(publishedMs + eventDelayMs) + linkDelayMs,
    placementsDueMs: (placedMs) => nextSecondMs(placedMs) + linkDelayMs,
    // Load is broadcast at whole seconds already.
    loadDueMs: (sentMs) => sentMs + linkDelayMs,
  }),
};

/** The delays of a `sharing` mode. A lone router only waits for the engines' events. */
export function deliveryTimes(sharing: Sharing, routers: number, timing: SimTiming): DeliveryTimes {
  return delaysBySharing[routers > 1 || sharing === "none" ? sharing : "oracle"](timing);
}

/** Whether each router keeps its own placements, load and sessions to itself. */
export const isPrivate = (sharing: Sharing): boolean => sharing === "none" || sharing === "events-only";

/** What reaches the routers of one region, by the region that it comes from. Regions are numbers from 0. */
export interface Arrivals {
  /** By region of the sender. */
  readonly times: readonly DeliveryTimes[];
  /** The region of each engine and each router, by number; 0 for those that are absent. */
  readonly engines: readonly number[];
  readonly routers: readonly number[];
}

/** All is equally near. */
export function arrivalsNear(times: DeliveryTimes): Arrivals {
  return { times: [times], engines: [], routers: [] };
}

/** The arrivals at each region of a fleet, by its number; only one without a placement. */
export function arrivalsOf(
  sharing: Sharing,
  routers: number,
  { timing, placement }: { readonly timing: SimTiming; readonly placement?: Placement | undefined },
): readonly Arrivals[] {
  if (!placement) return [arrivalsNear(deliveryTimes(sharing, routers, timing))];
  const regions = Array.from({ length: placement.regions }, (_, region) => region);
  return regions.map((to) => ({
    engines: placement.engines,
    routers: placement.routers,
    times: regions.map((from) => deliveryTimes(sharing, routers, wayOf(sharing, { timing, placement, from, to }))),
  }));
}

/** Routers that share events read them where the engine is; others read them from afar. */
function wayOf(
  sharing: Sharing,
  way: { readonly timing: SimTiming; readonly placement: Placement; readonly from: number; readonly to: number },
): SimTiming {
  const { timing, placement, from, to } = way;
  const between = (one: number, other: number): SimTiming => timingBetween(timing, placement.delayMs(one, other));
  const areShared = placement.routers.length > 1 && (sharing === "mesh" || sharing === "gossip-1s");
  return areShared ? { ...between(from, to), eventDelayMs: between(from, from).eventDelayMs } : between(from, to);
}

/** When what a router sends now reaches the routers of the region. */
export function dueMs(
  { times, routers }: Arrivals,
  kind: "placementsDueMs" | "loadDueMs",
  router: number,
  nowMs: number,
): number {
  return times[routers[router] ?? 0]![kind](nowMs);
}

/** Runs what is due by now, in the order of their due times. */
export function runDue(inTransit: TimerHeap, nowMs: number): void {
  for (let arrive = inTransit.take(nowMs); arrive; arrive = inTransit.take(nowMs)) arrive();
}
