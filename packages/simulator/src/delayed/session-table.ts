import { type Clock, RecencyMap } from "@espalier/common";
import type { BindingStore } from "@espalier/routing";
import { DelayQueue } from "./delivery.ts";

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
  /** When a binding that is made at a moment arrives at the other routers. Bindings never overtake each other. */
  readonly dueMs: (boundMs: number) => number;
  /** Bindings that have reached all routers at most; the oldest are evicted. Default: 100,000. */
  readonly capacity?: number;
}

/**
 * Session bindings of routers that exchange them with a delay. One table serves all routers: it has the latest binding of
 * each session that has reached all of them. A router sees its own bindings at once.
 */
export class SessionTable {
  readonly #options: SessionTableOptions;
  readonly #known = new RecencyMap<string, Binding>();
  /** By router: its last binding of each session, until it has reached the others. */
  readonly #own: Map<string, Binding>[] = [];
  readonly #inTransit = new DelayQueue<Binding>();
  #stamp = 0;

  constructor(options: SessionTableOptions) {
    this.#options = options;
  }

  /** The bindings as one router sees them. */
  seenBy(router: number): BindingStore {
    const { clock, dueMs } = this.#options;
    const own = this.#own[router] ?? new Map<string, Binding>();
    this.#own[router] = own;
    const find = (key: string): Binding | undefined => {
      this.#catchUp();
      const mine = own.get(key);
      const known = this.#known.get(key);
      const last = mine && known ? (mine.stamp > known.stamp ? mine : known) : (mine ?? known);
      return last && last.expiresMs > clock.nowMs() ? last : undefined;
    };
    return {
      get: (key) => find(key)?.value,
      leftMs(key) {
        const found = find(key);
        return found ? found.expiresMs - clock.nowMs() : 0;
      },
      set: (key, value, ttlMs) => {
        const nowMs = clock.nowMs();
        const binding = { key, value, expiresMs: nowMs + ttlMs, stamp: ++this.#stamp, router };
        own.set(key, binding);
        this.#inTransit.push(dueMs(nowMs), binding);
        this.#catchUp();
      },
    };
  }

  #catchUp(): void {
    const nowMs = this.#options.clock.nowMs();
    while (this.#inTransit.nextDueMs <= nowMs) this.#arrive(this.#inTransit.take());
  }

  /** They arrive in the order of their stamps. */
  #arrive(binding: Binding): void {
    const { capacity = maxKnownBindings } = this.#options;
    const { key, router } = binding;
    const own = this.#own[router]!;
    if (own.get(key) === binding) own.delete(key);
    this.#known.set(key, binding);
    if (this.#known.size > capacity) this.#known.deleteOldest();
  }
}
