import { type Clock, LiveCounts, RecencyMap } from "@espalier/core";
import type { BindingStore } from "@espalier/routing";
import { TimerHeap } from "@espalier/testing";
import { type Arrivals, dueMs, runDue } from "./delivery.ts";

/** As many as real routers keep. */
const maxKnownBindings = 100_000;

interface Binding {
  readonly key: string;
  readonly value: string;
  readonly expiresMs: number;
  /** Later bindings have greater ones. */
  readonly stamp: number;
  readonly router: number;
}

export interface SessionTableOptions {
  readonly clock: Clock;
  /** By region of the readers. Bindings of one router never overtake each other. */
  readonly arrivals: readonly Arrivals[];
  /** Bindings that have reached all routers at most; the oldest are evicted. Default: 100,000. */
  readonly capacity?: number;
}

/** What has reached the routers of one region, and what is on its way to them. */
interface RegionBindings {
  readonly arrivals: Arrivals;
  readonly known: RecencyMap<string, Binding>;
  readonly counts: LiveCounts;
  readonly inTransit: TimerHeap;
}

/**
 * Session bindings of routers that exchange them with a delay. One table serves all routers: it has the latest binding of
 * each session that has reached all of a region. A router sees its own bindings at once.
 */
export class SessionTable {
  readonly #options: SessionTableOptions;
  readonly #regions: readonly RegionBindings[];
  /** By router: its last binding of each session, until it has reached the others. */
  readonly #own: Map<string, Binding>[] = [];
  #stamp = 0;

  constructor(options: SessionTableOptions) {
    this.#options = options;
    this.#regions = options.arrivals.map((arrivals) => ({
      arrivals,
      known: new RecencyMap(),
      counts: new LiveCounts(),
      inTransit: new TimerHeap(),
    }));
  }

  /** The bindings as one router sees them. */
  seenBy(router: number): BindingStore {
    const { clock } = this.#options;
    const seen = this.#regions[this.#options.arrivals[0]!.routers[router] ?? 0]!;
    const own = this.#own[router] ?? new Map<string, Binding>();
    this.#own[router] = own;
    const find = (key: string): Binding | undefined => {
      runDue(seen.inTransit, clock.nowMs());
      const mine = own.get(key);
      const known = seen.known.get(key);
      const last = mine && known ? (mine.stamp > known.stamp ? mine : known) : (mine ?? known);
      return last && last.expiresMs > clock.nowMs() ? last : undefined;
    };
    const set = (key: string, value: string, ttlMs: number): void => {
      const nowMs = clock.nowMs();
      const binding = { key, value, expiresMs: nowMs + ttlMs, stamp: ++this.#stamp, router };
      own.set(key, binding);
      for (const readers of this.#regions) {
        const atMs = dueMs(readers.arrivals, "placementsDueMs", router, nowMs);
        readers.inTransit.add(atMs, () => this.#arrive(readers, binding));
        runDue(readers.inTransit, nowMs);
      }
    };
    const count = (value: string): number => {
      const nowMs = clock.nowMs();
      runDue(seen.inTransit, nowMs);
      let bound = seen.counts.of(value, nowMs);
      // Its own that have not reached the others are few.
      for (const [key, mine] of own) {
        const known = seen.known.get(key);
        if (known && known.stamp > mine.stamp) continue;
        if (known && known.value === value && known.expiresMs > nowMs) bound -= 1;
        if (mine.value === value && mine.expiresMs > nowMs) bound += 1;
      }
      return bound;
    };
    return {
      count,
      get: (key) => find(key)?.value,
      leftMs(key) {
        const found = find(key);
        return found ? found.expiresMs - clock.nowMs() : 0;
      },
      set,
      forget: (key) => set(key, "", 0),
    };
  }

  #arrive(readers: RegionBindings, binding: Binding): void {
    const { capacity = maxKnownBindings } = this.#options;
    const { key, router, stamp } = binding;
    const { known, counts } = readers;
    const own = this.#own[router]!;
    // Its own region is the nearest one.
    if (own.get(key) === binding) own.delete(key);
    // One from afar may arrive after a later one from nearby.
    const before = known.get(key);
    if (before && before.stamp > stamp) return;
    if (before) counts.remove(before);
    known.set(key, binding);
    counts.add(binding);
    if (known.size <= capacity) return;
    counts.remove(known.oldest()![1]);
    known.deleteOldest();
  }
}
