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

/** The delays of a `sharing` mode. A lone router only waits for the engines' events. */
export function deliveryTimes(sharing: Sharing, routers: number, timing: SimTiming): DeliveryTimes {
  const { eventDelayMs, linkDelayMs, sharedFactsMs, sharedLoadMs } = timing;
  const atOnce = (atMs: number): number => atMs;
  const read = (publishedMs: number): number => publishedMs + eventDelayMs;
  if (sharing === "none") return { factsDueMs: undefined, placementsDueMs: atOnce, loadDueMs: atOnce };
  if (routers > 1 && sharing === "mesh") {
    return {
      factsDueMs: (publishedMs) => publishedMs + eventDelayMs + sharedFactsMs,
      placementsDueMs: (placedMs) => placedMs + sharedFactsMs,
      loadDueMs: (sentMs) => sentMs + sharedLoadMs,
    };
  }
  if (routers > 1 && sharing === "gossip-1s") {
    return {
      factsDueMs: (publishedMs) => nextSecondMs(publishedMs + eventDelayMs) + linkDelayMs,
      placementsDueMs: (placedMs) => nextSecondMs(placedMs) + linkDelayMs,
      // Load is broadcast at whole seconds already.
      loadDueMs: (sentMs) => sentMs + linkDelayMs,
    };
  }
  return { factsDueMs: read, placementsDueMs: atOnce, loadDueMs: atOnce };
}

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

/** Maximum messages in transit in one queue. A fleet with more is too large for one process. */
export const maxInTransit = 4_194_304;

const firstCapacity = 1_024;

/** Messages in transit from several regions, in the order in which they arrive. Those of one region keep their order. */
export class ArrivalQueue<Item> {
  readonly #byRegion: readonly DelayQueue<Item>[];

  constructor({ times }: Arrivals) {
    this.#byRegion = times.map(() => new DelayQueue<Item>());
  }

  /** When the first one is due; Infinity when there is none. */
  get nextDueMs(): number {
    return this.#first.nextDueMs;
  }

  /** @throws RangeError as `DelayQueue.push` does */
  push(region: number, dueMs: number, item: Item): void {
    this.#byRegion[region]!.push(dueMs, item);
  }

  /** Takes the first one out. @throws RangeError when there is none */
  take(): Item {
    return this.#first.take();
  }

  get #first(): DelayQueue<Item> {
    let first = this.#byRegion[0]!;
    for (const queue of this.#byRegion) if (queue.nextDueMs < first.nextDueMs) first = queue;
    return first;
  }
}

/** A FIFO of messages in transit, each with its arrival time. */
export class DelayQueue<Item> {
  readonly #maxItems: number;
  #duesMs = new Float64Array(firstCapacity);
  #items = new Array<Item | undefined>(firstCapacity).fill(undefined);
  #first = 0;
  #count = 0;

  constructor(maxItems = maxInTransit) {
    this.#maxItems = maxItems;
  }

  get size(): number {
    return this.#count;
  }

  /** When the first one is due; Infinity when there is none. */
  get nextDueMs(): number {
    return this.#count === 0 ? Number.POSITIVE_INFINITY : this.#duesMs[this.#first]!;
  }

  /** @throws RangeError when too many are in transit, or when it would overtake an earlier one */
  push(dueMs: number, item: Item): void {
    if (this.#count === this.#maxItems) throw new RangeError(`more than ${this.#maxItems} messages are on their way`);
    if (this.#count === this.#items.length) this.#grow();
    const mask = this.#items.length - 1;
    if (this.#count > 0 && !(dueMs >= this.#duesMs[(this.#first + this.#count - 1) & mask]!)) {
      throw new RangeError(`what is due at ${dueMs} ms would overtake what was sent before it`);
    }
    const at = (this.#first + this.#count++) & mask;
    this.#duesMs[at] = dueMs;
    this.#items[at] = item;
  }

  /** Takes the first one out. @throws RangeError when there is none */
  take(): Item {
    if (this.#count === 0) throw new RangeError("nothing is on its way");
    const item = this.#items[this.#first] as Item;
    this.#items[this.#first] = undefined;
    this.#first = (this.#first + 1) & (this.#items.length - 1);
    this.#count--;
    return item;
  }

  #grow(): void {
    const { length } = this.#items;
    const duesMs = new Float64Array(length * 2);
    const items = new Array<Item | undefined>(length * 2).fill(undefined);
    for (let place = 0; place < this.#count; place++) {
      const at = (this.#first + place) & (length - 1);
      duesMs[place] = this.#duesMs[at]!;
      items[place] = this.#items[at];
    }
    this.#duesMs = duesMs;
    this.#items = items;
    this.#first = 0;
  }
}
