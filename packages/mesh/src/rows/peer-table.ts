import type { Clock, RouterId } from "@espalier/core";
import type { Origin } from "../origin.ts";

/** The fields of every frame that has a counter of its own. */
export interface CountedFrame {
  readonly origin: Origin;
  /** Rises with every frame that an origin makes. */
  readonly counter: number;
  /** How long the relay that made this frame had not heard the origin; undefined in frames of the origin. */
  readonly relayedAgeMs: number | undefined;
}

/** Of which epoch of a router a row is, and which counter it had in that. */
export type Version = Pick<CountedFrame, "origin" | "counter">;

/** Whether a row of a router replaces another one under the same key: a later epoch does, whatever its counter. */
export function isLater(one: Version, other: Version): boolean {
  const { epoch } = other.origin;
  return one.origin.epoch === epoch ? one.counter > other.counter : one.origin.epoch > epoch;
}

/** How far one other router was heard, and its rows by key. */
export class PeerRows<Key, Row extends { readonly key: Key }> {
  /** Its latest epoch. */
  origin: Origin;
  /** On the monotonic clock. */
  heardMs = Number.NEGATIVE_INFINITY;
  /** The highest of all frames of this epoch. */
  counter = -1;
  readonly rows = new Map<Key, Row>();
  readonly #left: (row: Row) => void;

  /** @param left called for each row that is removed */
  constructor(origin: Origin, left: (row: Row) => void) {
    this.origin = origin;
    this.#left = left;
  }

  /** Takes the head of a frame. @returns whether it is later than all frames before */
  hear({ origin, counter, relayedAgeMs }: CountedFrame, nowMs: number): boolean {
    if (origin.epoch !== this.origin.epoch || counter <= this.counter) return false;
    this.counter = counter;
    // A relay repeats what it has heard, which is no younger for that.
    this.heardMs = Math.max(this.heardMs, nowMs - (relayedAgeMs ?? 0));
    return true;
  }

  remove(row: Row): void {
    this.rows.delete(row.key);
    this.#left(row);
  }

  /** Removes all rows, so that it counts for nothing. */
  clear(): void {
    for (const row of this.rows.values()) this.remove(row);
  }
}

/** What a table keeps of one other router. */
type Peer = Pick<PeerRows<never, never>, "origin" | "heardMs" | "counter" | "clear">;

export interface PeerTableOptions<Known extends Peer> {
  readonly clock: Clock;
  readonly maxPeers: number;
  /** A router that was not heard for so long may have to give its place to another. */
  readonly leaseMs: number;
  /**
   * What a later epoch of a router replaces: `all` of an earlier one, at once and for good, or only what is under the
   * same `key`, in whatever order the epochs are heard.
   */
  readonly laterEpochReplaces: "all" | "key";
  begin(origin: Origin): Known;
}

/** The rows of all other routers: what each has sent of late, in a bounded number of places. */
export class PeerTable<Known extends Peer> {
  readonly #options: PeerTableOptions<Known>;
  readonly #peers = new Map<RouterId, Known>();

  constructor(options: PeerTableOptions<Known>) {
    this.#options = options;
  }

  get(router: RouterId): Known | undefined {
    return this.#peers.get(router);
  }

  [Symbol.iterator](): Iterator<Known> {
    return this.#peers.values();
  }

  /** What is kept of a router; undefined for an epoch that is replaced, or beyond the bound on routers. */
  of(origin: Origin): Known | undefined {
    const known = this.#peers.get(origin.router);
    if (!known) return this.#hasPlace() ? this.#begin(origin) : undefined;
    const { epoch } = known.origin;
    const replacesKey = this.#options.laterEpochReplaces === "key";
    if (origin.epoch <= epoch) return origin.epoch === epoch || replacesKey ? known : undefined;
    if (replacesKey) {
      known.origin = origin;
      known.counter = -1;
      return known;
    }
    known.clear();
    return this.#begin(origin);
  }

  forget(known: Known): void {
    known.clear();
    this.#peers.delete(known.origin.router);
  }

  /** Forgets the routers whose leases have ended. */
  expire(): void {
    for (const known of this.#peers.values()) if (this.#isExpired(known)) this.forget(known);
  }

  /**
   * Forgets the router that has been silent for longest, of those whose leases have ended.
   *
   * @param but it never forgets this one
   * @returns whether there was any
   */
  evict(but?: Known): boolean {
    let oldest: Known | undefined;
    for (const known of this.#peers.values()) {
      if (known === but || !this.#isExpired(known)) continue;
      if (!oldest || known.heardMs < oldest.heardMs) oldest = known;
    }
    if (oldest) this.forget(oldest);
    return oldest !== undefined;
  }

  #hasPlace(): boolean {
    return this.#peers.size < this.#options.maxPeers || this.evict();
  }

  #begin(origin: Origin): Known {
    const known = this.#options.begin(origin);
    this.#peers.set(origin.router, known);
    return known;
  }

  #isExpired({ heardMs }: Known): boolean {
    return this.#options.clock.nowMs() - heardMs > this.#options.leaseMs;
  }
}
