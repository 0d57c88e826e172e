import type { Sharing, SimTiming } from "../run.ts";

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

/** Maximum messages in transit in one queue. A fleet with more is too large for one process. */
export const maxInTransit = 4_194_304;

const firstCapacity = 1_024;

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
