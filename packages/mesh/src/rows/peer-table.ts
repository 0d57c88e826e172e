import type { RouterId } from "@espalier/core";
import type { Origin } from "../origin.ts";

/** The fields of every frame that has a counter of its own. */
export interface CountedFrame {
  readonly origin: Origin;
  /** Rises with every frame that an origin makes. */
  readonly counter: number;
  /** How long the relay that made this frame had not heard the origin; undefined in frames of the origin. */
  readonly relayedAgeMs: number | undefined;
}

/** How far one epoch of another router was heard. */
export class Heard {
  /** On the monotonic clock. */
  heardMs = Number.NEGATIVE_INFINITY;
  /** The highest of all frames of this epoch. */
  counter = -1;

  /** @returns whether it is later than all frames before */
  hear({ counter, relayedAgeMs }: CountedFrame, nowMs: number): boolean {
    if (counter <= this.counter) return false;
    this.counter = counter;
    // A relay repeats what it has heard, which is no younger for that.
    this.heardMs = Math.max(this.heardMs, nowMs - (relayedAgeMs ?? 0));
    return true;
  }
}

/** What is kept of one other router: of its latest epoch. */
export interface Peer {
  readonly origin: Origin;
  readonly heardMs: number;
  /** Makes it count for nothing. */
  clear(nowMs: number): void;
}

export interface PeerTableOptions<Known extends Peer> {
  readonly maxPeers: number;
  /** A router that was not heard for so long may have to give its place to another. */
  readonly leaseMs: number;
  begin(origin: Origin): Known;
  /** A router has begun a later epoch. @returns what is kept of it from now on */
  succeed(known: Known, origin: Origin): Known;
}

/** What other routers have sent, by router: the latest epoch of each, which an earlier one never replaces. */
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

  /** What is kept of an epoch; undefined for an earlier epoch, or beyond the bound on routers. */
  of(origin: Origin, nowMs: number): Known | undefined {
    const known = this.#peers.get(origin.router);
    if (known?.origin.epoch === origin.epoch) return known;
    if (known && known.origin.epoch > origin.epoch) return undefined;
    if (!known && !this.#hasCapacity(nowMs)) return undefined;
    const begun = known ? this.#options.succeed(known, origin) : this.#options.begin(origin);
    this.#peers.set(origin.router, begun);
    return begun;
  }

  forget(known: Known, nowMs: number): void {
    known.clear(nowMs);
    this.#peers.delete(known.origin.router);
  }

  /** Forgets the router that has been silent for longest, if it must. */
  #hasCapacity(nowMs: number): boolean {
    const { maxPeers, leaseMs } = this.#options;
    if (this.#peers.size < maxPeers) return true;
    let oldest: Known | undefined;
    for (const known of this.#peers.values()) {
      if (nowMs - known.heardMs <= leaseMs) continue;
      if (!oldest || known.heardMs < oldest.heardMs) oldest = known;
    }
    if (oldest) this.forget(oldest, nowMs);
    return oldest !== undefined;
  }
}
